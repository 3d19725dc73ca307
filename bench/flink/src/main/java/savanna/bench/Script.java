package savanna.bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
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
 * Runs files of Flink SQL statements in a cluster inside this process, one for each line of the input, which is a path; waits for the last statement to end, and
 * prints the processor time that the process took for it. Arguments: settings, each as key=value.
 */
public final class Script {
    public static void main(String[] arguments) throws Exception {
        Configuration config = settings(arguments);
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String path = input.readLine(); path != null; path = input.readLine()) {
            long before = process.getProcessCpuTime();
            run(Files.readString(Path.of(path)), config);
            System.out.println("cpu_seconds " + (process.getProcessCpuTime() - before) / 1e9);
        }
    }

    static Configuration settings(String... more) {
        Configuration config = new Configuration();
        config.setString("execution.runtime-mode", "STREAMING");
        config.setString("pipeline.object-reuse", "true");
        config.setString("taskmanager.memory.managed.size", "512m");
        for (String setting : more) {
            int equals = setting.indexOf('=');
            config.setString(setting.substring(0, equals), setting.substring(equals + 1));
        }
        return config;
    }

    static void run(String script, Configuration config) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(config);
        StreamTableEnvironment tables =
                StreamTableEnvironment.create(env, EnvironmentSettings.newInstance().withConfiguration(config).build());
        tables.executeSql("CREATE TEMPORARY FUNCTION count_char AS '" + CountChar.class.getName() + "'");
        TableResult last = null;
        for (String statement : statements(script)) {
            last = tables.executeSql(statement);
        }
        last.await();
    }

    private static List<String> statements(String script) {
        String withoutComments = script.replaceAll("(?m)--.*$", "");
        return Arrays.stream(withoutComments.split(";")).map(String::strip).filter(s -> !s.isEmpty()).toList();
    }
}
