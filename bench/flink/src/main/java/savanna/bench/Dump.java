package savanna.bench;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.table.data.TimestampData;

/** Prints the first events of a seed as `savanna nexmark generate --format ndjson` writes them. */
public final class Dump {
    private static final Map<Events.Kind, List<String>> FIELDS = Map.of(
            Events.Kind.PERSON,
            List.of("id", "name", "emailAddress", "creditCard", "city", "state", "dateTime", "extra"),
            Events.Kind.AUCTION,
            List.of("id", "itemName", "description", "initialBid", "reserve", "dateTime", "expires", "seller",
                    "category", "extra"),
            Events.Kind.BID,
            List.of("auction", "bidder", "price", "channel", "url", "dateTime", "extra"));

    public static void main(String[] arguments) {
        Events events = new Events(Long.parseLong(arguments[1]), 10_000);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (long n = 0; n < Long.parseLong(arguments[0]); n++) {
            Events.Kind kind = Events.Kind.of(n);
            List<String> values = new ArrayList<>();
            for (String name : FIELDS.get(kind)) {
                values.add("\"" + name + "\":" + json(events.column(kind, name).of(n)));
            }
            out.println("{\"event_type\":" + kind.ordinal() + ",\"" + kind.name().toLowerCase() + "\":{"
                    + String.join(",", values) + "}}");
        }
        out.flush();
    }

    private static String json(Object value) {
        if (value instanceof Long) {
            return value.toString();
        }
        if (value instanceof TimestampData) {
            LocalDateTime time = ((TimestampData) value).toLocalDateTime();
            String pattern = time.getNano() == 0 ? "yyyy-MM-dd'T'HH:mm:ss" : "yyyy-MM-dd'T'HH:mm:ss.SSS";
            return "\"" + time.format(DateTimeFormatter.ofPattern(pattern)) + "\"";
        }
        return "\"" + value + "\"";
    }
}
