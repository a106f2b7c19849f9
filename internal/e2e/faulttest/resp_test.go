package faulttest

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// TestRedisClientsOverRestart counts through two listeners of one process, stops it in the middle
// of the pipelines of Redis clients, and continues in another process. Every answered event is
// there.
func TestRedisClientsOverRestart(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	flags := []string{"--redis", "redis://" + store.Addr(), "--resp", "127.0.0.1:0"}
	first := program.Serve(t, proctest.Options{}, flags...)
	if status, body, err := first.Post("/v1/add", `{"key":"k","n":5}`); err != nil || status != 200 {
		t.Fatalf("%d %s %v", status, body, err)
	}
	c := redis.NewClient(&redis.Options{Addr: first.Resp, MaxRetries: -1})
	defer c.Close()
	counted, stopped := int64(5), make(chan int, 1)
	for sent := 0; ; sent++ {
		pipe := c.Pipeline()
		for range 50 {
			pipe.Do(t.Context(), "TT.ADD", "k")
		}
		cmds, err := pipe.Exec(t.Context())
		for _, cmd := range cmds {
			if cmd.Err() == nil {
				counted++
			}
		}
		if err != nil {
			break
		}
		if sent == 20 {
			go func() { stopped <- first.Stop() }()
		}
	}
	if status := <-stopped; status != 0 {
		t.Errorf("it ended with status %d", status)
	}
	second := program.Serve(t, proctest.Options{}, flags...)
	again := redis.NewClient(&redis.Options{Addr: second.Resp})
	defer again.Close()
	got, err := again.Do(t.Context(), "TT.COUNT", "k", "24h").Int64Slice()
	// The last pipeline may have been executed without an answer.
	if err != nil || len(got) != 1 || got[0] < counted || got[0] > counted+50 {
		t.Errorf("%v are there, %v; %d were answered", got, err, counted)
	}
	if http := second.Count("k", "24h"); http.Counts[0].Count != got[0] {
		t.Errorf("HTTP counts %d, RESP %d", http.Counts[0].Count, got[0])
	}
}
