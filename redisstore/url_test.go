package redisstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/leaparray"
	"twotier.dev/twotier/redisstore"
)

// reach says where a client will connect to, in one line.
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
		{"redis://localhost/", "redis", "localhost", "localhost:6379 db=0 as : tls=false"},
		{"redis://h:7000/3", "redis", "h:7000", "h:7000 db=3 as : tls=false"},
		{"redis://h:7000?db=3", "redis", "h:7000", "h:7000 db=3 as : tls=false"},
		{"redis://h:7000/?db=3", "redis", "h:7000", "h:7000 db=3 as : tls=false"},
		{"redis://[::1]:7000", "redis", "[::1]:7000", "[::1]:7000 db=0 as : tls=false"},
		{"redis://[::1]", "redis", "[::1]", "[::1]:6379 db=0 as : tls=false"},
		{"redis://alice:s3cret@h", "redis", "h", "h:6379 db=0 as alice:s3cret tls=false"},
		{"redis://:s3cret@h", "redis", "h", "h:6379 db=0 as :s3cret tls=false"},
		{"redis://alice:a%2Fb%40c%3Ad@h/1", "redis", "h", "h:6379 db=1 as alice:a/b@c:d tls=false"},
		{"redis://alice:a@b@h", "redis", "h", "h:6379 db=0 as alice:a@b tls=false"},
		{"rediss://h:7000", "redis", "h:7000", "h:7000 db=0 as : tls=true"},
		{"unix:///run/redis.sock", "redis", "/run/redis.sock",
			"/run/redis.sock db=0 as : tls=false"},
		{"unix://alice:s3cret@/run/redis.sock?db=2", "redis", "/run/redis.sock",
			"/run/redis.sock db=2 as alice:s3cret tls=false"},
		{"unix:///run/a@b.sock", "redis", "/run/a@b.sock", "/run/a@b.sock db=0 as : tls=false"},
		{"redis+cluster://a,b:7001", "redis-cluster", "a,b:7001",
			"cluster a:6379,b:7001 as : tls=false"},
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
	const slash = "; in a password write %2F for a slash, and so on"
	for _, tc := range []struct{ url, want string }{
		{"", `redis URL "": want redis://host:port`},
		{"localhost:6379", `redis URL "localhost:6379": want redis://host:port`},
		{"alice:s3cret@localhost", `redis URL "alice:***@localhost": want redis://host:port`},
		{"http://h",
			`redis URL "http://h": unknown scheme, want redis, rediss, unix, redis+cluster or redis+sentinel`},
		{"redis+ring://u:s3cret@h",
			`redis URL "redis+ring://u:***@h": unknown scheme, want redis, rediss, unix, redis+cluster or redis+sentinel`},
		{"redis://", `redis URL "redis://": a host is missing`},
		{"redis+cluster://a,,b", `redis URL "redis+cluster://a,,b": a host is missing`},
		{"redis://a,b",
			`redis URL "redis://a,b": several hosts, want redis+cluster://host,host or redis+sentinel://host,host/master-name`},
		{"redis://h/one",
			`redis URL "redis://h/one": database "one", want a number (and none with a cluster)`},
		{"redis+cluster://h/1",
			`redis URL "redis+cluster://h/1": database "1", want a number (and none with a cluster)`},
		{"redis+cluster://h?db=1",
			`redis URL "redis+cluster://h?db=1": database "1", want a number (and none with a cluster)`},
		{"redis+sentinel://h",
			`redis URL "redis+sentinel://h": want redis+sentinel://host:port,host:port/master-name`},
		{"redis://u:s3cret/x@h", `redis URL "redis://u:***@h": malformed` + slash},
		{"redis://u:12#s3cret@h", `redis URL "redis://u:***@h": malformed` + slash},
		{"redis://u:s3cret?x@h", `redis URL "redis://u:***@h": malformed` + slash},
		{"redis://u:s3cret%zz@h", `redis URL "redis://u:***@h": malformed` + slash},
		{"redis://u:s3cret@h/x",
			`redis URL "redis://u:***@h/x": database "x", want a number (and none with a cluster)`},
	} {
		_, err := redisstore.New(redisstore.Options{URL: tc.url,
			Ladders: ladders(defaultLadder(t))})
		if err == nil || err.Error() != tc.want {
			t.Errorf("%s:\n got %v\nwant %s", tc.url, err, tc.want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the password is shown: %v", tc.url, err)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	const want = `redisstore: expiry "never", want key, field or tairhash`
	_, err := redisstore.New(redisstore.Options{URL: "redis://h", Expiry: "never",
		Ladders: ladders(defaultLadder(t))})
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := redisstore.New(redisstore.Options{URL: "redis://h"}); err == nil {
		t.Error("no ladders are accepted")
	}
}

func TestSentinelsPasswordIsNotShown(t *testing.T) {
	l, err := leaparray.NewLadder(leaparray.DefaultLevels()...)
	if err != nil {
		t.Fatal(err)
	}
	_, err = redisstore.New(redisstore.Options{
		URL:     "redis+sentinel://me:pw@h:1/?sentinel-user=a&sentinel-password=secret&db=1",
		Ladders: map[string]*leaparray.Ladder{"default": l},
	})
	if err == nil || strings.Contains(err.Error(), "secret") ||
		strings.Contains(err.Error(), "pw@") {
		t.Errorf("got %v", err)
	}
}
