package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/redisstore"
)

// reach describes in one line where a client will connect to.
func reach(client redis.UniversalClient) string {
	switch c := client.(type) {
	case *redis.ClusterClient:
		o := c.Options()
		return fmt.Sprintf("cluster %s as %s:%s tls=%v", strings.Join(o.Addrs, ","), o.Username,
			o.Password, o.TLSConfig != nil)
	case *redis.Client:
		o := c.Options()
		return fmt.Sprintf("%s db=%d as %s:%s tls=%v", o.Addr, o.DB, o.Username, o.Password,
			o.TLSConfig != nil)
	}
	return fmt.Sprintf("%T", client)
}

func TestURL(t *testing.T) {
	for _, tc := range []struct{ url, kind, address, reach string }{
		{"redis://localhost", "redis", "localhost", "localhost:6379 db=0 as : tls=false"},
		{"redis://alice:s3cret@h/3", "redis", "h", "h:6379 db=3 as alice:s3cret tls=false"},
		{"rediss://h:7000", "redis", "h:7000", "h:7000 db=0 as : tls=true"},
		{"unix://alice:s3cret@/run/redis.sock?db=2", "redis", "/run/redis.sock",
			"/run/redis.sock db=2 as alice:s3cret tls=false"},
		{"redis+cluster://a,b:7001", "redis-cluster", "a,b:7001",
			"cluster a:6379,b:7001 as : tls=false"},
		{"redis+cluster://a", "redis-cluster", "a", "cluster a:6379 as : tls=false"},
		{"rediss+cluster://u:p@a:1", "redis-cluster", "a:1", "cluster a:1 as u:p tls=true"},
		{"redis+sentinel://a,b:7/main", "redis-sentinel", "a,b:7",
			"FailoverClient db=0 as : tls=false"},
		{"rediss+sentinel://u:p@a/main/4", "redis-sentinel", "a",
			"FailoverClient db=4 as u:p tls=true"},
	} {
		s := open(t, redisstore.Options{URL: tc.url})
		if got := reach(s.Client()); got != tc.reach {
			t.Errorf("%s reaches %s, want %s", tc.url, got, tc.reach)
		}
		h := s.Health()
		if h.Kind != tc.kind || h.Address != tc.address || h.Err == nil {
			t.Errorf("%s: %+v, want kind %s, address %s, and not up", tc.url, h, tc.kind,
				tc.address)
		}
	}
}

func TestURLErrors(t *testing.T) {
	const want = `redis URL "redis://u:xxxxx@h/x": database "x", want a number`
	_, err := redisstore.New(redisstore.Options{URL: "redis://u:s3cret@h/x",
		Ladders: ladders(defaultLadder(t))})
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestOptionErrors(t *testing.T) {
	const want = `redisstore: expiry "never", want key, field or tairhash`
	_, err := redisstore.New(redisstore.Options{URL: "redis://h", Expiry: "never",
		Ladders: ladders(defaultLadder(t))})
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, prefix := range []string{"a:", "a{", "}", "a*", " ", "ä", strings.Repeat("x", 33)} {
		want := fmt.Sprintf("redisstore: prefix: %q is not 1 to 32 letters, digits, dots, dashes "+
			"and underscores", prefix)
		_, err := redisstore.New(redisstore.Options{URL: "redis://h", Prefix: prefix,
			Ladders: ladders(defaultLadder(t))})
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := redisstore.New(redisstore.Options{URL: "redis://h"}); err == nil {
		t.Error("no ladders are accepted")
	}
}
