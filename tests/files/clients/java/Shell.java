import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.util.ToolRunner;

/** The shell of Hadoop, for many commands: one in each line, its words between tabs. A line with its status ends what it says. */
public class Shell {
    public static void main(String[] none) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            int status = switch (words[0]) {
                case "quota" -> quota(words);
                case "policy" -> policy(line.split("\t", -1));
                default -> ToolRunner.run(new FsShell(new Configuration()), words);
            };
            System.err.flush();
            System.out.println("\nstatus " + status);
            System.out.flush();
        }
    }

    private static DistributedFileSystem files() throws Exception {
        return (DistributedFileSystem) FileSystem.get(new Configuration());
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
