package savanna.bench;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.binary.BinaryStringData;

/** The texts of events, as in the generator's text.rs. Nearly all are slices of buffers that are filled once. */
final class Texts {
    static final String[] FIRST_NAMES = {
        "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"
    };
    static final String[] LAST_NAMES = {
        "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"
    };

    private static final int CHANNELS = 10_000;
    private static final int PADDING = 128 << 10;
    private static final int WORDS = 32 << 10;
    private static final int WORD_MIN = 3;

    final StringData[] names = texts(
            Arrays.stream(FIRST_NAMES).flatMap(first -> Arrays.stream(LAST_NAMES).map(last -> first + " " + last)));
    final StringData[] cities = texts(Stream.of(
            "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent",
            "Cheyenne"));
    final StringData[] states = texts(Stream.of("AZ", "CA", "ID", "OR", "WA", "WY"));

    private final StringData[] hotChannels = texts(Stream.of("Google", "Facebook", "Baidu", "Apple"));
    private final StringData[] channels = texts(IntStream.range(0, CHANNELS).mapToObj(i -> "channel-" + i));
    private final StringData[] hotUrls;
    private final StringData[] urls;
    private final byte[] padding = new byte[PADDING];
    private final byte[] words = new byte[WORDS];

    Texts(long seed) {
        Draws letters = new Draws(seed, 1_001);
        for (int n = 0; n < PADDING; n++) {
            padding[n] = letter(letters.high(n));
        }
        Draws spaces = new Draws(seed, 1_002);
        Draws wordLetters = new Draws(seed, 1_003);
        for (int n = 0; n < WORDS; n++) {
            words[n] = wordLetter(spaces, wordLetters, n, (byte) ' ');
        }
        hotUrls = texts(IntStream.range(0, 4).mapToObj(i -> baseUrl(seed, i)));
        Draws withId = new Draws(seed, 1_004);
        urls = texts(IntStream.range(0, CHANNELS).mapToObj(i -> {
            String url = baseUrl(seed, 4 + i);
            return Draws.below(withId.high(i), 10) == 0
                    ? url
                    : url + "&channel_id=" + Integer.toUnsignedString(Math.abs(Integer.reverse(i)));
        }));
    }

    static StringData pick(StringData[] list, int bits) {
        return list[Draws.below(bits, list.length)];
    }

    StringData channel(long draw) {
        return ofChannel(draw, hotChannels, channels);
    }

    /** The URL of a bid, by the same random bits as its channel. */
    StringData url(long draw) {
        return ofChannel(draw, hotUrls, urls);
    }

    private static StringData ofChannel(long draw, StringData[] hot, StringData[] others) {
        return draw < 0 ? hot[Draws.below((int) draw, 4)] : others[Draws.below((int) draw, CHANNELS)];
    }

    /** Padding that brings an event of so many bytes to the average size on average. */
    StringData padding(int bytes, int average, long draw) {
        int missing = average - bytes;
        if (missing < 0) {
            return BinaryStringData.EMPTY_UTF8;
        }
        int spread = (missing + 2) / 5;
        int length = missing - spread + Draws.below((int) (draw >>> 32), 2L * spread);
        return StringData.fromBytes(padding, Draws.below((int) draw, PADDING - length), length);
    }

    /** Words of at least three and less than so many letters. */
    StringData words(int lengthMax, long draw) {
        int length = WORD_MIN + Draws.below((int) (draw >>> 32), lengthMax - WORD_MIN);
        int start = Draws.below((int) draw, WORDS - length);
        int end = start + length;
        while (start < end && words[start] == ' ') {
            start++;
        }
        while (start < end && words[end - 1] == ' ') {
            end--;
        }
        return StringData.fromBytes(words, start, end - start);
    }

    static int length(StringData text) {
        return ((BinaryStringData) text).getSizeInBytes();
    }

    private static StringData[] texts(Stream<String> texts) {
        return texts.map(text -> StringData.fromBytes(text.getBytes(StandardCharsets.UTF_8)))
                .toArray(StringData[]::new);
    }

    private static byte letter(int bits) {
        return (byte) ('a' + Draws.below(bits, 26));
    }

    private static byte wordLetter(Draws spaces, Draws letters, long n, byte space) {
        return Draws.below(spaces.high(n), 13) == 0 ? space : letter(letters.high(n));
    }

    private static String baseUrl(long seed, long number) {
        Draws lengths = new Draws(seed, 1_005);
        Draws spaces = new Draws(seed, 1_006);
        Draws letters = new Draws(seed, 1_007);
        StringBuilder url = new StringBuilder("https://www.nexmark.com/");
        for (int part = 0; part < 3; part++) {
            long n = number * 3 + part;
            int length = WORD_MIN + Draws.below(lengths.high(n), 5 - WORD_MIN);
            for (int i = 0; i < length; i++) {
                url.append((char) wordLetter(spaces, letters, n * 8 + i, (byte) '_'));
            }
            url.append('/');
        }
        return url + "item.htm?query=1";
    }
}
