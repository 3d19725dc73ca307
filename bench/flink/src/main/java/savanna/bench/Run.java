package savanna.bench;

import java.io.IOException;
import java.io.InputStream;
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
 * Runs a file of Flink SQL statements in a cluster inside this process, until its last query has ended.
 * Arguments: file, events, seed, parallelism, state back end (hashmap or rocksdb).
 */
public final class Run {
    public static void main(String[] arguments) throws Exception {
        String query = Files.readString(Path.of(arguments[0]));
        String options = "'events.num' = '" + arguments[1] + "', 'seed' = '" + arguments[2] + "'";

        Configuration config = new Configuration();
        config.setString("execution.runtime-mode", "STREAMING");
        config.setString("parallelism.default", arguments[3]);
        config.setString("state.backend.type", arguments[4]);
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
