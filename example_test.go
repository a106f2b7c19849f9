package twotier_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"

	"twotier.dev/twotier"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
	"twotier.dev/twotier/syncer"
)

// A counter in memory that keeps Redis up to date in the background. It admits two requests a
// minute and fifty a day, in any minute and any day.
func Example() {
	server, err := miniredis.Run() // any Redis from 6.2 on
	if err != nil {
		panic(err)
	}
	defer server.Close()
	store, err := redisstore.New(redisstore.Options{
		URL:       "redis://" + server.Addr(),
		Placement: twotier.Placement{Partitions: twotier.DefaultPartitions},
		Ladders:   map[string]*leaparray.Ladder{"default": leaparray.Default()},
	})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	counter, err := syncer.New(syncer.Options{Store: store, Placement: store.Placement()})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := counter.Open(ctx); err != nil {
		panic(err)
	}

	op := twotier.Op{Kind: twotier.Acquire, Checks: []twotier.Check{{
		Key: []byte("alice"), N: 1,
		Limits: []twotier.Limit{{Window: 60_000, Max: 2}, {Window: 86_400_000, Max: 50}},
	}}}
	var res twotier.Result
	for range 3 {
		if err := counter.Do(ctx, &op, &res); err != nil {
			panic(err)
		}
		fmt.Println(res.Allowed, res.Checks[0].Limits[0].Count, res.Checks[0].Limits[1].Count)
	}
	fmt.Println("everything flushed:", counter.Close(ctx) == nil)
	// Output:
	// true 1 1
	// true 2 2
	// false 2 2
	// everything flushed: true
}
