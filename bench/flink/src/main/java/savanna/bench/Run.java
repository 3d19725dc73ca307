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
import java.util.Arrays;
import java.util.List;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableResult;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Runs a file of Flink SQL statements in a cluster inside this process, once for each line of the input, which is a number of
 * events; prints the processor time that the process took for it.
 * Arguments: file, seed, parallelism, state back end (hashmap or rocksdb).
 */
public final class Run {
    public static void main(String[] arguments) throws Exception {
        String query = Files.readString(Path.of(arguments[0]));
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String events = input.readLine(); events != null; events = input.readLine()) {
            long before = process.getProcessCpuTime();
            run(query, events, arguments);
            System.out.println("cpu_seconds " + (process.getProcessCpuTime() - before) / 1e9);
        }
    }

    private static void run(String query, String events, String[] arguments) throws Exception {
        String options = "'events.num' = '" + events + "', 'seed' = '" + arguments[1] + "'";
        Configuration config = new Configuration();
        config.setString("execution.runtime-mode", "STREAMING");
        config.setString("parallelism.default", arguments[2]);
        config.setString("state.backend.type", arguments[3]);
        config.setString("pipeline.object-reuse", "true");
        config.setString("taskmanager.memory.managed.size", "512m");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(config);
        StreamTableEnvironment tables =
                StreamTableEnvironment.create(env, EnvironmentSettings.newInstance().withConfiguration(config).build());

        tables.executeSql("CREATE TEMPORARY FUNCTION count_char AS '" + CountChar.class.getName() + "'");
        TableResult last = null;
        for (String statement : statements(source().replace("${OPTIONS}", options) + query)) {
            last = tables.executeSql(statement);
        }
        last.await();
    }

    private static String source() throws IOException {
        try (InputStream text = Run.class.getResourceAsStream("/nexmark.sql")) {
            return new String(text.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private static List<String> statements(String script) {
        String withoutComments = script.replaceAll("(?m)--.*$", "");
        return Arrays.stream(withoutComments.split(";")).map(String::strip).filter(s -> !s.isEmpty()).toList();
    }
}
