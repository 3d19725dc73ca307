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
            int status = words[0].equals("quota") ? quota(words) : ToolRunner.run(new FsShell(new Configuration()), words);
            System.err.flush();
            System.out.println("\nstatus " + status);
            System.out.flush();
        }
    }

    /** What `dfsadmin -setQuota` and `-setSpaceQuota` ask for; they are not among the jars of clients. */
    private static int quota(String[] words) throws Exception {
        DistributedFileSystem files = (DistributedFileSystem) FileSystem.get(new Configuration());
        files.setQuota(new Path(words[1]), Long.parseLong(words[2]), Long.parseLong(words[3]));
        return 0;
    }
}
