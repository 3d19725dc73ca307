package savanna.bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;

/**
 * Runs a file of Flink SQL statements over generated events, once for each line of the input, which is a number of
 * events; prints the processor time that the process took for it.
 * Arguments: file, seed, parallelism, state back end (hashmap or rocksdb).
 */
public final class Run {
    public static void main(String[] arguments) throws Exception {
        String query = Files.readString(Path.of(arguments[0]));
        Configuration config = Script.settings("parallelism.default=" + arguments[2], "state.backend.type=" + arguments[3]);
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String events = input.readLine(); events != null; events = input.readLine()) {
            long before = process.getProcessCpuTime();
            String options = "'events.num' = '" + events + "', 'seed' = '" + arguments[1] + "'";
            Script.run(source().replace("${OPTIONS}", options) + query, config);
            System.out.println("cpu_seconds " + (process.getProcessCpuTime() - before) / 1e9);
        }
    }

    private static String source() throws IOException {
        try (InputStream text = Run.class.getResourceAsStream("/nexmark.sql")) {
            return new String(text.readAllBytes(), StandardCharsets.UTF_8);
        }
    }
}
