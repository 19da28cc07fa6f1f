package headrace;

import java.io.IOException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FilterFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/** Local files, in a process that ends before it creates or renames a certain file of a table. */
public final class HaltingFiles extends FilterFileSystem {
    private static final AtomicInteger LEFT = new AtomicInteger();

    public HaltingFiles() {
        super(new LocalFiles());
    }

    @Override
    public String getScheme() {
        return "file";
    }

    /** End the process before this file: 1 is the next. 0 is never. */
    public static void haltBefore(int file) {
        LEFT.set(file);
    }

    @Override
    public FSDataOutputStream create(
            Path path,
            FsPermission permission,
            boolean overwrite,
            int bufferSize,
            short replication,
            long blockSize,
            Progressable progress)
            throws IOException {
        count();
        return super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
    }

    @Override
    public boolean rename(Path source, Path target) throws IOException {
        count();
        return super.rename(source, target);
    }

    private static void count() {
        if (LEFT.get() > 0 && LEFT.decrementAndGet() == 0) {
            Runtime.getRuntime().halt(9);
        }
    }
}
