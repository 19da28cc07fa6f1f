package headrace;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFileSystem;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Local files whose rename replaces no other file, as on HDFS. Hadoop's own class replaces it.
 *
 * <p>A commit to a table is the rename of a file to the name of the next version. If another process has been faster,
 * this rename fails, whereas Hadoop's would undo the other's commit. Only the file that names the newest version is
 * replaced, so that a table has one at each moment. Besides, files are created without a process, and read without a
 * thread.
 */
public final class LocalFiles extends LocalFileSystem {
    private static final String VERSION_HINT = "version-hint.text";  // Iceberg's, in each folder of metadata

    public LocalFiles() {
        super(new Raw());
    }

    /**
     * Deletes only the checksum of a version hint, because Iceberg renames the next hint to this name afterwards.
     * Readers without a catalog find no table without a hint: during each commit, and until the next one if the process
     * ends.
     */
    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        if (path.getName().equals(VERSION_HINT)) {
            fs.delete(getChecksumFile(path), false);
            return true;
        }
        return super.delete(path, recursive);
    }

    /** The same files for FileContext, through which Delta writes its log. */
    public static final class Context extends DelegateToFileSystem {
        public Context(URI root, Configuration conf) throws IOException, URISyntaxException {
            super(root, new Raw(), conf, "file", false);
        }

        @Override
        public void renameInternal(Path source, Path target) throws IOException {
            if (!fsImpl.rename(source, target)) {
                throw new FileAlreadyExistsException(target.toString());
            }
        }

        @Override
        public boolean isValidName(String path) {
            return true;
        }
    }

    private static final class Raw extends RawLocalFileSystem {
        /**
         * Returns false if the target is a file, unless this is a version hint. A link is the only exclusive name that
         * Java can give to a file.
         */
        @Override
        public boolean rename(Path source, Path target) throws IOException {
            File from = pathToFile(source);
            File to = pathToFile(target);
            boolean file = Files.isRegularFile(from.toPath(), LinkOption.NOFOLLOW_LINKS) && !to.isDirectory();
            boolean replaces = target.getName().equals(VERSION_HINT)
                    || ChecksumFileSystem.isChecksumFile(source);  // that of a file which has the name already
            if (!file || replaces) {
                return super.rename(source, target);
            }
            try {
                Files.createLink(to.toPath(), from.toPath());
            } catch (UnsupportedOperationException | FileSystemException refused) {
                if (!to.exists()) {  // the file system has no links, as SMB
                    return super.rename(source, target);
                }
                if (!Files.isSameFile(from.toPath(), to.toPath())) {  // NFS repeats a request whose answer was lost
                    return false;
                }
            }
            from.delete();  // the target counts: an error here would let the writer repeat its commit
            return true;
        }

        /** Hadoop reads ranges in threads, each with a direct buffer. Without memory the thread ends, its reader waits. */
        @Override
        public FSDataInputStream open(Path path, int bufferSize) throws IOException {
            return new FSDataInputStream(new Pieces(super.open(path, bufferSize)));
        }

        /** Hadoop runs chmod. */
        @Override
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {  // Java cannot set it
                super.setPermission(path, permission);
                return;
            }
            Files.setPosixFilePermissions(
                    pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
        }

        /** Hadoop runs readlink. */
        @Override
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            boolean link = Files.isSymbolicLink(pathToFile(path).toPath());
            return link ? super.getFileLinkStatus(path) : getFileStatus(path);
        }
    }

    /** Reads ranges one after the other, in pieces, because Java reads each through a direct buffer of its size. */
    private static final class Pieces extends FSInputStream {
        private static final int PIECE = 1024 * 1024;
        private final FSDataInputStream in;

        Pieces(FSDataInputStream in) {
            this.in = in;
        }

        @Override
        public int read(long position, byte[] buffer, int offset, int length) throws IOException {
            return in.read(position, buffer, offset, Math.min(length, PIECE));
        }

        @Override
        public int read(byte[] buffer, int offset, int length) throws IOException {
            return in.read(buffer, offset, length);
        }

        @Override
        public int read() throws IOException {
            return in.read();
        }

        @Override
        public long skip(long bytes) throws IOException {
            return in.skip(bytes);
        }

        @Override
        public int available() throws IOException {
            return in.available();
        }

        @Override
        public void seek(long position) throws IOException {
            in.seek(position);
        }

        @Override
        public long getPos() throws IOException {
            return in.getPos();
        }

        @Override
        public boolean seekToNewSource(long position) throws IOException {
            return in.seekToNewSource(position);
        }

        @Override
        public void close() throws IOException {
            in.close();
        }
    }
}
