package headrace;

import static org.apache.hadoop.fs.Options.CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE;

import io.delta.storage.CloseableIterator;
import io.delta.storage.S3SingleDriverLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;

/**
 * Creates entries of Delta's log on S3 only if they do not exist, by a request with {@code If-None-Match}.
 *
 * <p>Delta's own store for S3 looks for the entry and then writes it, so that two processes may replace each other's
 * commits. Hadoop sends the condition (HADOOP-19256) only for files that are created with an option of its builder.
 */
public final class ConditionalS3LogStore extends S3SingleDriverLogStore {
    public ConditionalS3LogStore(Configuration hadoopConf) {
        super(hadoopConf);
    }

    /** Fails with FileAlreadyExistsException, which Delta repeats for the next version, if another writer was faster. */
    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
            throws IOException {
        if (overwrite) {
            super.write(path, actions, true, hadoopConf);
            return;
        }
        List<String> lines = new ArrayList<>();
        actions.forEachRemaining(lines::add);
        FileSystem storage = path.getFileSystem(hadoopConf);
        if (storage.exists(path)) {  // as a rule of another writer: saves the upload
            throw new FileAlreadyExistsException(path.toString());
        }
        FSDataOutputStreamBuilder<?, ?> creation = storage.createFile(path);
        creation.must(FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true);
        try {
            // Closing uploads what has been written, so a stream whose write has failed (a full disk) stays open.
            FSDataOutputStream out = (FSDataOutputStream) creation.build();
            for (String line : lines) {
                out.write((line + "\n").getBytes(StandardCharsets.UTF_8));
            }
            out.close();
        } catch (RemoteFileChangedException refused) {
            // The client repeats a request whose answer was lost; then the entry that is in its way is its own.
            if (!lines.equals(content(path, hadoopConf))) {
                throw new FileAlreadyExistsException(path.toString());
            }
        }
    }

    private List<String> content(Path path, Configuration hadoopConf) throws IOException {
        List<String> lines = new ArrayList<>();
        try (CloseableIterator<String> found = read(path, hadoopConf)) {
            found.forEachRemaining(lines::add);
        }
        return lines;
    }
}
