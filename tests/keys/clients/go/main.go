// go-redis: `go run . PORT`.
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
	for _, protocol := range []int{2, 3} {
		smoke(ctx, redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol}))
	}
	fmt.Println("go-redis: ok")
}

func smoke(ctx context.Context, client *redis.Client) {
	defer client.Close()
	must(client.FlushAll(ctx).Result())

	// Strings
	must(client.Set(ctx, "a", "1", 100*time.Second).Result())
	equal(int64(42), must(client.IncrBy(ctx, "a", 41).Result()))
	equal("42", must(client.Get(ctx, "a").Result()))
	equal(redis.Nil, client.Get(ctx, "nothing").Err())
	equal(true, must(client.TTL(ctx, "a").Result()) > 90*time.Second)

	// Types
	must(client.HSet(ctx, "h", "f", 1, "g", "two").Result())
	equal(map[string]string{"f": "1", "g": "two"}, must(client.HGetAll(ctx, "h").Result()))
	must(client.ZAdd(ctx, "z", redis.Z{Score: 2, Member: "b"}, redis.Z{Score: 1, Member: "a"}).Result())
	equal([]redis.Z{{Score: 1, Member: "a"}, {Score: 2, Member: "b"}}, must(client.ZRangeWithScores(ctx, "z", 0, -1).Result()))

	// Pipeline
	pipeline := client.Pipeline()
	for i := range 1000 {
		pipeline.Set(ctx, fmt.Sprint("p:", i), i, 0)
	}
	equal(1000, len(must(pipeline.Exec(ctx))))
	equal("999", must(client.Get(ctx, "p:999").Result()))

	// MULTI and WATCH
	commands := must(client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.Set(ctx, "m", "x", 0)
		tx.Append(ctx, "m", "y")
		return nil
	}))
	equal(int64(2), commands[1].(*redis.IntCmd).Val())
	err := client.Watch(ctx, func(tx *redis.Tx) error {
		must(client.Set(ctx, "m", "changed", 0).Result())
		_, err := tx.TxPipelined(ctx, func(inner redis.Pipeliner) error { return inner.Set(ctx, "m", "lost", 0).Err() })
		return err
	}, "m")
	equal(redis.TxFailedErr, err)

	// Scan
	found := 0
	for scan := client.Scan(ctx, 0, "p:*", 100).Iterator(); scan.Next(ctx); {
		found++
	}
	equal(1000, found)

	// Messages
	listener := client.Subscribe(ctx, "news")
	defer listener.Close()
	must(listener.Receive(ctx))
	for must(client.Publish(ctx, "news", "hello").Result()) == 0 {
	}
	equal("hello", must(listener.ReceiveMessage(ctx)).Payload)

	// Waiting for an element
	if info := must(client.Do(ctx, "COMMAND", "INFO", "BLPOP").Slice()); info[0] != nil {
		popped := make(chan []string)
		go func() { popped <- must(client.BLPop(ctx, 10*time.Second, "queue").Result()) }()
		must(client.RPush(ctx, "queue", "job").Result())
		equal([]string{"queue", "job"}, <-popped)
	}

	// A user with a password
	must(client.Do(ctx, "ACL", "SETUSER", "clerk", "on", ">secret", "~c:*", "+@all").Result())
	clerk := redis.NewClient(&redis.Options{Addr: client.Options().Addr, Username: "clerk", Password: "secret"})
	defer clerk.Close()
	must(clerk.Set(ctx, "c:1", "x", 0).Result())
	equal(true, strings.HasPrefix(clerk.Get(ctx, "a").Err().Error(), "NOPERM"))
}
