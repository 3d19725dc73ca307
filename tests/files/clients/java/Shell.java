import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.util.ToolRunner;

/** The shell of Hadoop, for many commands: one in each line, its words between tabs. A line with its status ends what it says. */
public class Shell {
    public static void main(String[] none) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            int status = ToolRunner.run(new FsShell(new Configuration()), line.split("\t"));
            System.err.flush();
            System.out.println("\nstatus " + status);
            System.out.flush();
        }
    }
}
