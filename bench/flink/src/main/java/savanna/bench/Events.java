package savanna.bench;

import static savanna.bench.Draws.below;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;

/**
 * The events of Savanna's nexmark source with default options, as in its generator.rs: every value is a function of the
 * seed, the event's number and the column, so that each column can be made alone.
 */
final class Events {
    /** The kinds of event; the ordinals are those of column event_type. */
    enum Kind {
        PERSON(0, 1),
        AUCTION(1, 4),
        BID(4, 50);

        /** Where events of the kind lie in each group of the proportions. */
        final int start;
        final int end;

        Kind(int start, int end) {
            this.start = start;
            this.end = end;
        }

        static Kind of(long n) {
            int offset = (int) (n % GROUP);
            return offset < PERSON.end ? PERSON : offset < AUCTION.end ? AUCTION : BID;
        }
    }

    /** Makes one column's value of an event. */
    interface Column {
        Object of(long n);
    }

    static final int GROUP = 50;

    private static final long BASE_MS = 1_436_918_400_000L;
    private static final long FIRST_ID = 1_000;
    private static final int ID_LEAD = 10;
    private static final int HOT_RATIO = 100;
    private static final int AUCTIONS = Kind.AUCTION.end - Kind.AUCTION.start;
    private static final int AUCTIONS_IN_FLIGHT = 100;
    private static final int PEOPLE_ACTIVE = 1_000;
    private static final int HOT_AUCTIONS = 2;
    private static final int HOT_BIDDERS = 4;
    private static final int HOT_SELLERS = 4;

    /** The columns in the order in which their random numbers are numbered. */
    private static final List<String> TAGS = List.of(
            "person.id", "person.name", "person.emailAddress", "person.creditCard", "person.city", "person.state",
            "person.extra", "auction.id", "auction.itemName", "auction.description", "auction.initialBid",
            "auction.reserve", "auction.expires", "auction.seller", "auction.category", "auction.extra",
            "bid.auction", "bid.bidder", "bid.price", "bid.channel", "bid.url", "bid.extra");

    private final long seed;
    private final long rate;
    private final Texts texts;
    private final double[] prices = new double[4_097];

    Events(long seed, long rate) {
        this.seed = seed;
        this.rate = rate;
        texts = new Texts(seed);
        double price = 100.0;
        for (int i = 0; i < prices.length; i++) {
            prices[i] = price;
            price *= 1.0033786221027048;
        }
    }

    long timeMs(long n) {
        return BASE_MS + n * 1_000 / rate;
    }

    /** The column of that name, or null if the kind has none. */
    Column column(Kind kind, String name) {
        if (name.equals("dateTime")) {
            return n -> TimestampData.fromEpochMillis(timeMs(n));
        }
        String path = kind.name().toLowerCase() + "." + name;
        Draws draws = draws(path);
        switch (path) {
            case "person.id":
                return n -> lastPerson(n) + FIRST_ID;
            case "person.name":
                return n -> Texts.pick(texts.names, draws.high(n));
            case "person.city":
                return n -> Texts.pick(texts.cities, draws.high(n));
            case "person.state":
                return n -> Texts.pick(texts.states, draws.high(n));
            case "person.emailAddress":
                return n -> email(draws, n);
            case "person.creditCard":
                return n -> creditCard(draws.at(n));
            case "person.extra":
                return personExtra(draws);
            case "auction.id":
                return n -> lastAuction(n) + FIRST_ID;
            case "auction.itemName":
                return n -> texts.words(20, draws.at(n));
            case "auction.description":
                return n -> texts.words(100, draws.at(n));
            case "auction.initialBid":
            case "bid.price":
                return n -> price(draws.at(n));
            case "auction.reserve":
                Draws initial = draws("auction.initialBid");
                return n -> price(initial.at(n)) + price(draws.at(n));
            case "auction.expires":
                return n -> TimestampData.fromEpochMillis(expires(draws, n));
            case "auction.seller":
                return n -> FIRST_ID + seller(draws.at(n), n);
            case "auction.category":
                return n -> 10L + below(draws.high(n), 5);
            case "auction.extra":
                return auctionExtra(draws);
            case "bid.auction":
                return n -> FIRST_ID + bidAuction(draws.at(n), n);
            case "bid.bidder":
                return n -> FIRST_ID + bidder(draws.at(n), n);
            case "bid.channel":
                return n -> texts.channel(draws.at(n));
            case "bid.url":
                Draws channels = draws("bid.channel");
                return n -> texts.url(channels.at(n));
            case "bid.extra":
                return n -> texts.padding(4 * 8, 100, draws.at(n));
            default:
                return null;
        }
    }

    private Draws draws(String path) {
        return new Draws(seed, TAGS.indexOf(path));
    }

    private StringData email(Draws draws, long n) {
        return StringData.fromString(texts.words(7, draws.at(2 * n)) + "@" + texts.words(5, draws.at(2 * n + 1)) + ".com");
    }

    private static StringData creditCard(long bits) {
        byte[] card = "0000 0000 0000 0000".getBytes(StandardCharsets.US_ASCII);
        for (int group = 0; group < 4; group++) {
            int number = below((int) (bits >>> (16 * group)) & 0xffff, 10_000L << 16);
            for (int at = 5 * group + 3; at >= 5 * group; at--) {
                card[at] += (byte) (number % 10);
                number /= 10;
            }
        }
        return StringData.fromBytes(card);
    }

    private Column personExtra(Draws draws) {
        Draws names = draws("person.name");
        Draws cities = draws("person.city");
        Draws emails = draws("person.emailAddress");
        return n -> {
            int name = Texts.length(Texts.pick(texts.names, names.high(n)));
            int city = Texts.length(Texts.pick(texts.cities, cities.high(n)));
            int user = Texts.length(texts.words(7, emails.at(2 * n)));
            int host = Texts.length(texts.words(5, emails.at(2 * n + 1)));
            return texts.padding(8 + name + city + user + host + 5 + 19 + 2, 200, draws.at(n));
        };
    }

    private Column auctionExtra(Draws draws) {
        Draws names = draws("auction.itemName");
        Draws descriptions = draws("auction.description");
        return n -> {
            int name = Texts.length(texts.words(20, names.at(n)));
            int description = Texts.length(texts.words(100, descriptions.at(n)));
            return texts.padding(6 * 8 + name + description, 500, draws.at(n));
        };
    }

    private long expires(Draws draws, long n) {
        long horizon = timeMs(n + (long) AUCTIONS_IN_FLIGHT * GROUP / AUCTIONS) - timeMs(n);
        long bound = Math.min(Math.max(horizon * 2, 1), 0xffffffffL);
        return timeMs(n) + 1 + Integer.toUnsignedLong(below(draws.high(n), bound));
    }

    private long seller(long draw, long n) {
        return below((int) (draw >>> 32), HOT_SELLERS) > 0
                ? lastPerson(n) / HOT_RATIO * HOT_RATIO
                : anyPerson(n, (int) draw);
    }

    private long bidAuction(long draw, long n) {
        long last = lastAuction(n);
        if (below((int) (draw >>> 32), HOT_AUCTIONS) > 0) {
            return last / HOT_RATIO * HOT_RATIO;
        }
        long first = Math.max(last - AUCTIONS_IN_FLIGHT, 0);
        return first + below((int) draw, last - first + 1 + ID_LEAD);
    }

    private long bidder(long draw, long n) {
        return below((int) (draw >>> 32), HOT_BIDDERS) > 0
                ? lastPerson(n) / HOT_RATIO * HOT_RATIO + 1
                : anyPerson(n, (int) draw);
    }

    /** The last person (from 0) that exists at event n; itself, if it is one. */
    private static long lastPerson(long n) {
        return n / GROUP;
    }

    /** The last auction (from 0) that exists at event n; itself, if it is one. */
    private static long lastAuction(long n) {
        int place = (int) (n % GROUP) - Kind.AUCTION.start;
        return n / GROUP * AUCTIONS + Math.min(Math.max(place, -1), AUCTIONS - 1);
    }

    private static long anyPerson(long n, int bits) {
        long people = lastPerson(n) + 1;
        long active = Math.min(people, PEOPLE_ACTIVE);
        return people - active + below(bits, active + ID_LEAD);
    }

    private long price(long bits) {
        int at = (int) (bits >>> 52);
        double fraction = (double) (bits << 12 >>> 12) / (double) (1L << 52);
        return (long) (prices[at] + fraction * (prices[at + 1] - prices[at]) + 0.5);
    }
}
