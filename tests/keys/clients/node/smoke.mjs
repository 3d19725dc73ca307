// ioredis: `node smoke.mjs PORT`.
import assert from "node:assert/strict";
import Redis from "ioredis";

const connect = (options = {}) => new Redis({ port: Number(process.argv[2]), host: "127.0.0.1", ...options });
const redis = connect();
await redis.flushall();

// Strings
assert.equal(await redis.set("a", "1", "EX", 100), "OK");
assert.equal(await redis.incrby("a", 41), 42);
assert.equal(await redis.get("a"), "42");
assert.equal(await redis.get("nothing"), null);
assert.deepEqual(await redis.getBuffer("a"), Buffer.from("42"));

// Types
await redis.hset("h", { f: 1, g: "two" });
assert.deepEqual(await redis.hgetall("h"), { f: "1", g: "two" });
await redis.zadd("z", 2, "b", 1, "a");
assert.deepEqual(await redis.zrange("z", 0, -1, "WITHSCORES"), ["a", "1", "b", "2"]);

// Pipeline
const replies = await redis.pipeline(Array.from({ length: 1000 }, (_, i) => ["set", `p:${i}`, i])).exec();
assert.ok(replies.length === 1000 && replies.every(([error, reply]) => !error && reply === "OK"));
assert.equal((await redis.mget(...Array.from({ length: 1000 }, (_, i) => `p:${i}`)))[999], "999");

// MULTI and WATCH
assert.deepEqual(await redis.multi().set("m", "x").append("m", "y").get("m").exec(), [[null, "OK"], [null, 2], [null, "xy"]]);
const other = connect();
await redis.watch("m");
await other.set("m", "changed");
assert.equal(await redis.multi().set("m", "lost").exec(), null);

// Scan
let found = 0;
for await (const keys of redis.scanStream({ match: "p:*", count: 100 })) found += keys.length;
assert.equal(found, 1000);

// Messages
const listener = connect();
const message = new Promise((resolve) => listener.on("message", (channel, text) => resolve([channel, text])));
await listener.subscribe("news");
while ((await redis.publish("news", "hello")) === 0);
assert.deepEqual(await message, ["news", "hello"]);

// Waiting for an element
if ((await redis.call("COMMAND", "INFO", "BLPOP"))[0]) {
  const popped = other.blpop("queue", 10);
  await redis.rpush("queue", "job");
  assert.deepEqual(await popped, ["queue", "job"]);
}

// A user with a password
await redis.call("ACL", "SETUSER", "clerk", "on", ">secret", "~c:*", "+@all");
const clerk = connect({ username: "clerk", password: "secret" });
assert.equal(await clerk.set("c:1", "x"), "OK");
await assert.rejects(clerk.get("a"), /NOPERM/);

for (const client of [redis, other, listener, clerk]) client.disconnect();
console.log("ioredis: ok");
