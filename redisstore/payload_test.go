package redisstore_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/redistest"
	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
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
			client := open(t, redisstore.Options{URL: srv.URL()}).Client()
			for n := 1; n <= redisstore.MaxPayloadAdds; n++ {
				made, counted := fmt.Sprint("made", n), fmt.Sprint("counted", n)
				var events []syncer.Bucket
				for i := range n {
					b := counts(leaparray.Moment(t0+int64(i)), int64(127-i))
					events = append(events, b)
					client.HIncrBy(t.Context(), counted, redisstore.Field(b.Stretch), b.N)
				}
				text := redisstore.PayloadOf(events)
				if err := client.Restore(t.Context(), made, time.Minute, text).Err(); err != nil {
					t.Fatal(err)
				}
				got, want := client.HGetAll(t.Context(), made).Val(),
					client.HGetAll(t.Context(), counted).Val()
				if len(want) != n || !maps.Equal(got, want) {
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

// TestPayloadsOfKeysThatExist counts in keys that are believed to be new and are not, with users
// who have the permission for RESTORE and without.
func TestPayloadsOfKeysThatExist(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	all := redisstore.Commands(redisstore.ExpiryKey)
	fewer := slices.DeleteFunc(slices.Clone(all), func(c string) bool { return c == "restore" })
	for _, allowed := range [][]string{all, fewer} {
		flushAll(t, srv)
		existing(t, open(t, redisstore.Options{URL: restricted(t, srv, allowed)}))
	}
}

// existing counts in keys that another program has made, and sends each round again: each event is
// counted once, and the store reports that the key existed.
func existing(t *testing.T, s *redisstore.Store) {
	t.Helper()
	for n := 1; n <= redisstore.MaxPayloadAdds; n++ {
		key := fmt.Sprint(n)
		hash := redisstore.Key(3, nil, []byte(key))
		s.Client().HSet(t.Context(), hash, redisstore.Field(second), 1)
		r := &syncer.Round{Partition: 3, Writer: "w", Seq: uint64(n)}
		k := syncer.KeyRound{Key: []byte(key), TTL: 1000, New: true}
		for i := range n {
			k.Adds = append(k.Adds, counts(leaparray.Moment(t0+int64(i)), int64(i+1)))
		}
		r.Keys = []syncer.KeyRound{k}
		for sent := range 2 {
			if s.Exchange(t.Context(), []*syncer.Round{r}); r.Err != nil || r.Keys[0].Err != nil {
				t.Fatal(r.Err, r.Keys[0].Err)
			}
			if r.Keys[0].Existed != (sent == 0) {
				t.Errorf("%d events, sent %d times: existed %v", n, sent+1, r.Keys[0].Existed)
			}
			for i, b := range r.Keys[0].Adds {
				if b.Stored != int64(i+1) {
					t.Errorf("%d events, sent %d times: event %d is %d", n, sent+1, i, b.Stored)
				}
			}
		}
	}
}
