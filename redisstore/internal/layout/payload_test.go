package layout_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore/internal/layout"
	"twotier.dev/twotier/syncer"
)

// TestPayloads makes keys of one event and of several by their payloads, on a server that trusts
// payloads and on one that checks every byte. Redis must keep them as if it had counted each event.
func TestPayloads(t *testing.T) {
	t.Parallel()
	for _, sanitize := range []string{"no", "yes"} {
		t.Run("sanitize-dump-payload "+sanitize, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, redistest.Config("sanitize-dump-payload "+sanitize))
			client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
			defer client.Close()
			for n := 1; n <= layout.MaxPayloadAdds; n++ {
				made, counted := fmt.Sprint("made", n), fmt.Sprint("counted", n)
				var events []syncer.Bucket
				lists := layout.Lists{}
				for i := range n {
					b := syncer.Bucket{Stretch: leaparray.Moment(1_763_000_000_000 + int64(i)),
						N: int64(255 - i)}
					events = append(events, b)
					lists.Push(b.Start, b.N, func(string) {})
				}
				lists.Finish(func(string) {})
				client.HSet(t.Context(), counted, map[string]string(lists))
				text := layout.Payload(events)
				if err := client.Restore(t.Context(), made, time.Minute, text).Err(); err != nil {
					t.Fatal(err)
				}
				got, want := client.HGetAll(t.Context(), made).Val(),
					client.HGetAll(t.Context(), counted).Val()
				if len(want) != 1 || !maps.Equal(got, want) {
					t.Errorf("%v in place of %v", got, want)
				}
				for _, key := range []string{made, counted} {
					if got := client.ObjectEncoding(t.Context(), key).Val(); got != "listpack" {
						t.Errorf("%s is a %q", key, got)
					}
				}
			}
		})
	}
}
