import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.fs.PartialListing;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.tools.DFSAdmin;
import org.apache.hadoop.hdfs.tools.DFSck;
import org.apache.hadoop.util.ToolRunner;

/** The shell of Hadoop, for many commands: one in each line, its words between tabs. A line with its status ends what it says. */
public class Shell {
    /** Files that are being written. */
    private static final List<FSDataOutputStream> LEFT = new ArrayList<>();

    public static void main(String[] none) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            int status = switch (words[0]) {
                case "quota" -> quota(words);
                case "policy" -> policy(line.split("\t", -1));
                case "admin" -> ToolRunner.run(new DFSAdmin(new HdfsConfiguration()), rest(words));
                case "fsck" -> ToolRunner.run(new DFSck(new HdfsConfiguration()), rest(words));
                case "batched" -> batched(rest(words));
                case "leave" -> leave(words);
                case "go-on" -> goOn(words);
                case "recover" -> recover(words);
                default -> ToolRunner.run(new FsShell(new Configuration()), words);
            };
            System.err.flush();
            System.out.println("\nstatus " + status);
            System.out.flush();
        }
    }

    private static String[] rest(String[] words) {
        return Arrays.copyOfRange(words, 1, words.length);
    }

    /** Lists several directories by calls for all of them. */
    private static int batched(String[] words) throws Exception {
        List<Path> paths = Arrays.stream(words).map(Path::new).toList();
        RemoteIterator<PartialListing<FileStatus>> listings = files().batchedListStatusIterator(paths);
        while (listings.hasNext()) {
            PartialListing<FileStatus> listing = listings.next();
            String said;
            try {
                said = String.join(" ", listing.get().stream().map(status -> status.getPath().getName()).toList());
            } catch (IOException refused) {
                said = refused.getClass().getSimpleName();
            }
            System.out.println(listing.getListedPath().toUri().getPath() + ": " + said);
        }
        return 0;
    }

    private static DistributedFileSystem files() throws Exception {
        return (DistributedFileSystem) FileSystem.get(new Configuration());
    }

    /** Writes a file of so many replicas as another client, and neither closes it nor goes on. */
    private static int leave(String[] words) throws Exception {
        FSDataOutputStream file = FileSystem.newInstance(new Configuration()).create(new Path(words[1]), Short.parseShort(words[3]));
        file.write(words[2].getBytes());
        file.hflush();
        LEFT.add(file);
        return 0;
    }

    /** Writes the file on that was left last, and closes it. */
    private static int goOn(String[] words) throws Exception {
        try (FSDataOutputStream file = LEFT.remove(LEFT.size() - 1)) {
            file.write(words[1].getBytes());
            file.hflush();
            return 0;
        }
    }

    /** What `hdfs debug recoverLease` asks for: whether the file is closed. */
    private static int recover(String[] words) throws Exception {
        System.out.print(files().recoverLease(new Path(words[1])));
        return 0;
    }

    /** What `hdfs storagepolicies` asks for: the policy of a path, or a new one, or that there is none any more. */
    private static int policy(String[] words) throws Exception {
        Path path = new Path(words[1]);
        if (words.length == 2) {
            System.out.print(files().getStoragePolicy(path).getName());
        } else if (words[2].isEmpty()) {
            files().unsetStoragePolicy(path);
        } else {
            files().setStoragePolicy(path, words[2]);
        }
        return 0;
    }

    /** What `dfsadmin -setQuota` and `-setSpaceQuota` ask for; they are not among the jars of clients. */
    private static int quota(String[] words) throws Exception {
        files().setQuota(new Path(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
        return 0;
    }
}
