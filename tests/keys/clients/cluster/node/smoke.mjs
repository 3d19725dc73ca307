// ioredis' client of clusters: `node smoke.mjs PORT`.
import assert from "node:assert/strict";
import { Cluster } from "ioredis";

const port = Number(process.argv[2]);
const cluster = new Cluster([{ host: "127.0.0.1", port }]);
await cluster.flushall();
assert.deepEqual(cluster.nodes("master").map((node) => node.options.port), [port]);

for (let number = 0; number < 1000; number++) assert.equal(await cluster.set(`k:${number}`, number), "OK");
assert.equal(await cluster.get("k:7"), "7");
assert.deepEqual(await cluster.mget("{t}a", "{t}b"), [null, null]);
await assert.rejects(cluster.mget("a", "b"), /CROSSSLOT/);
assert.deepEqual(await cluster.multi().set("{t}a", "x").append("{t}a", "y").exec(), [[null, "OK"], [null, 2]]);
assert.equal(await cluster.eval("return redis.call('GET', KEYS[1])", 1, "{t}a"), "xy");
assert.equal(await cluster.cluster("KEYSLOT", "{t}a"), await cluster.cluster("KEYSLOT", "t"));

const listener = new Cluster([{ host: "127.0.0.1", port }]);
const heard = new Promise((resolve) => listener.on("message", (channel, message) => resolve([channel, message])));
await listener.subscribe("news");
await cluster.publish("news", "x");
assert.deepEqual(await heard, ["news", "x"]);

await Promise.all([cluster.quit(), listener.quit()]);
console.log("ioredis: ok");
