import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Protocol;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisAccessControlException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis: {@code mvn compile exec:java -Dexec.args=PORT}. */
public final class Smoke {
    private static int port;

    public static void main(String[] args) throws Exception {
        port = Integer.parseInt(args[0]);
        for (RedisProtocol protocol : RedisProtocol.values()) {
            smoke(protocol);
        }
        System.out.println("jedis: ok");
    }

    private static Jedis connect(DefaultJedisClientConfig.Builder config) {
        return new Jedis(new HostAndPort("127.0.0.1", port), config.build());
    }

    private static void equal(Object expected, Object came) {
        if (!Objects.equals(expected, came)) {
            throw new AssertionError("expected " + expected + ", came " + came);
        }
    }

    private static void smoke(RedisProtocol protocol) throws Exception {
        DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder().protocol(protocol);
        try (Jedis jedis = connect(config); Jedis other = connect(config)) {
            jedis.flushAll();

            // Strings
            equal("OK", jedis.set("a", "1", SetParams.setParams().ex(100)));
            equal(42L, jedis.incrBy("a", 41));
            equal("42", jedis.get("a"));
            equal(null, jedis.get("nothing"));

            // Types
            jedis.hset("h", new HashMap<>(Map.of("f", "1", "g", "two")));
            equal(Map.of("f", "1", "g", "two"), jedis.hgetAll("h"));
            jedis.zadd("z", Map.of("b", 2.0, "a", 1.0));
            equal(1.0, jedis.zrangeWithScores("z", 0, -1).get(0).getScore());

            // Pipeline
            try (Pipeline pipeline = jedis.pipelined()) {
                for (int i = 0; i < 1000; i++) {
                    pipeline.set("p:" + i, String.valueOf(i));
                }
                Response<String> last = pipeline.get("p:999");
                pipeline.sync();
                equal("999", last.get());
            }

            // MULTI and WATCH
            try (Transaction transaction = jedis.multi()) {
                transaction.set("m", "x");
                transaction.append("m", "y");
                equal(List.of("OK", 2L), transaction.exec());
            }
            jedis.watch("m");
            other.set("m", "changed");
            try (Transaction transaction = jedis.multi()) {
                transaction.set("m", "lost");
                equal(null, transaction.exec());
            }

            // Scan
            int found = 0;
            String cursor = ScanParams.SCAN_POINTER_START;
            do {
                ScanResult<String> page = jedis.scan(cursor, new ScanParams().match("p:*").count(100));
                found += page.getResult().size();
                cursor = page.getCursor();
            } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
            equal(1000, found);

            messages(jedis, other);
            waiting(jedis, config);

            // A user with a password
            jedis.aclSetUser("clerk", "on", ">secret", "~c:*", "+@all");
            try (Jedis clerk = connect(DefaultJedisClientConfig.builder().protocol(protocol).user("clerk").password("secret"))) {
                equal("OK", clerk.set("c:1", "x"));
                try {
                    clerk.get("a");
                    throw new AssertionError("expected a refusal");
                } catch (JedisAccessControlException refused) {
                    equal(true, refused.getMessage().startsWith("NOPERM"));
                }
            }
        }
    }

    private static void messages(Jedis jedis, Jedis listener) throws Exception {
        CompletableFuture<String> heard = new CompletableFuture<>();
        JedisPubSub hearer = new JedisPubSub() {
            @Override
            public void onMessage(String channel, String message) {
                heard.complete(message);
                unsubscribe();
            }
        };
        Thread thread = new Thread(() -> listener.subscribe(hearer, "news"));
        thread.start();
        while (jedis.publish("news", "hello") == 0) {
            Thread.onSpinWait();
        }
        equal("hello", heard.get(30, TimeUnit.SECONDS));
        thread.join();
    }

    private static void waiting(Jedis jedis, DefaultJedisClientConfig.Builder config) throws Exception {
        List<?> info = (List<?>) jedis.sendCommand(Protocol.Command.COMMAND, "INFO", "BLPOP");
        if (info.get(0) == null) {
            return;
        }
        CompletableFuture<List<String>> popped = CompletableFuture.supplyAsync(() -> {
            try (Jedis waiter = connect(config)) {
                return waiter.blpop(10, "queue");
            }
        });
        jedis.rpush("queue", "job");
        equal(List.of("queue", "job"), popped.get(30, TimeUnit.SECONDS));
    }
}
