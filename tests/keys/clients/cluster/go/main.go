// go-redis' client of clusters: `go run . PORT`.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func equal(expected, came any) {
	if !reflect.DeepEqual(expected, came) {
		panic(fmt.Sprintf("expected %#v, came %#v", expected, came))
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	address := "127.0.0.1:" + os.Args[1]
	for _, protocol := range []int{2, 3} {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}, Protocol: protocol})
		must(client.FlushAll(ctx).Result())
		slots := must(client.ClusterSlots(ctx).Result())
		equal(1, len(slots))
		equal([]any{0, 16383, address}, []any{slots[0].Start, slots[0].End, slots[0].Nodes[0].Addr})
		shards := must(client.ClusterShards(ctx).Result())
		equal([]redis.SlotRange{{Start: 0, End: 16383}}, shards[0].Slots)
		equal([]any{slots[0].Nodes[0].ID, "master", "online"}, []any{shards[0].Nodes[0].ID, shards[0].Nodes[0].Role, shards[0].Nodes[0].Health})
		for number := range 1000 {
			must(client.Set(ctx, fmt.Sprintf("k:%d", number), number, 0).Result())
		}
		equal("7", must(client.Get(ctx, "k:7").Result()))
		equal(int64(1000), must(client.DBSize(ctx).Result()))
		pipeline := client.Pipeline()
		replies := make([]*redis.StringCmd, 0, 1000)
		for number := range 1000 {
			replies = append(replies, pipeline.Get(ctx, fmt.Sprintf("k:%d", number)))
		}
		must(pipeline.Exec(ctx))
		equal("999", replies[999].Val())
		_, err := client.MGet(ctx, "a", "b").Result()
		if err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
			panic(fmt.Sprint("expected CROSSSLOT, came ", err))
		}
		must(client.MSet(ctx, "{t}a", 1, "{t}b", 2).Result())
		equal([]any{"2", "1"}, must(client.MGet(ctx, "{t}b", "{t}a").Result()))
		err = client.Watch(ctx, func(tx *redis.Tx) error {
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Incr(ctx, "{t}a")
				pipe.Incr(ctx, "{t}b")
				return nil
			})
			return err
		}, "{t}a")
		if err != nil {
			panic(err)
		}
		equal([]any{"2", "3"}, must(client.MGet(ctx, "{t}a", "{t}b").Result()))
		equal("3", must(client.Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"{t}b"}).Result()))
		reader := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}, ReadOnly: true, RouteByLatency: true})
		equal("2", must(reader.Get(ctx, "{t}a").Result()))
		reader.Close()
		client.Close()
	}
	fmt.Println("go-redis: ok")
}
