package redisurl_test

import (
	"reflect"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/redisurl"
)

func TestParse(t *testing.T) {
	single := func(host, address string) redisurl.URL {
		return redisurl.URL{Kind: redisurl.Single, Hosts: host, Addresses: []string{address}}
	}
	with := func(u redisurl.URL, change func(*redisurl.URL)) redisurl.URL {
		change(&u)
		return u
	}
	as := func(u redisurl.URL, user, password string) redisurl.URL {
		u.Username, u.Password = user, password
		return u
	}
	third := with(single("h:7000", "h:7000"), func(u *redisurl.URL) { u.Database = 3 })
	second := redisurl.URL{Kind: redisurl.Cluster, Hosts: "a,b:7001",
		Addresses: []string{"a:6379", "b:7001"}, Database: 2}
	socket := with(single("/run/redis.sock", "/run/redis.sock"),
		func(u *redisurl.URL) { u.Unix = true })
	for text, want := range map[string]redisurl.URL{
		"redis://localhost":          single("localhost", "localhost:6379"),
		"redis://localhost/":         single("localhost", "localhost:6379"),
		"redis://localhost/?db=":     single("localhost", "localhost:6379"),
		"redis://[::1]:7000":         single("[::1]:7000", "[::1]:7000"),
		"redis://[::1]":              single("[::1]", "[::1]:6379"),
		"redis://::1":                single("::1", "[::1]:6379"),
		"redis://h:7000/3":           third,
		"redis://h:7000?db=3":        third,
		"redis://h:7000/?db=3":       third,
		"redis://alice@h":            as(single("h", "h:6379"), "alice", ""),
		"redis://alice:s3cret@h":     as(single("h", "h:6379"), "alice", "s3cret"),
		"redis://:s3cret@h":          as(single("h", "h:6379"), "", "s3cret"),
		"redis://al:a%2Fb%40c%3Ad@h": as(single("h", "h:6379"), "al", "a/b@c:d"),
		"redis://alice:a@b@h":        as(single("h", "h:6379"), "alice", "a@b"),
		"rediss://h": with(single("h", "h:6379"),
			func(u *redisurl.URL) { u.TLS = true }),
		"unix:///run/redis.sock": socket,
		"unix://me:s3cret@/run/redis.sock?db=2": with(as(socket, "me", "s3cret"),
			func(u *redisurl.URL) { u.Database = 2 }),
		"unix:///run/a@b.sock": with(socket, func(u *redisurl.URL) {
			u.Hosts, u.Addresses = "/run/a@b.sock", []string{"/run/a@b.sock"}
		}),
		"redis+cluster://a,b:7001": {Kind: redisurl.Cluster, Hosts: "a,b:7001",
			Addresses: []string{"a:6379", "b:7001"}},
		"redis+cluster://a,b:7001/2":    second,
		"redis+cluster://a,b:7001?db=2": second,
		"rediss+cluster://u:p@a:1,[::1]:2": {Kind: redisurl.Cluster, TLS: true,
			Hosts:     "a:1,[::1]:2",
			Addresses: []string{"a:1", "[::1]:2"}, Username: "u", Password: "p"},
		"redis+sentinel://a,b:7/main": {Kind: redisurl.Sentinel, Hosts: "a,b:7",
			Addresses: []string{"a:26379", "b:7"}, Master: "main"},
		"rediss+sentinel://u:p@a/main/4?sentinel-user=s&sentinel-password=q%26r": {
			Kind: redisurl.Sentinel, TLS: true, Hosts: "a", Addresses: []string{"a:26379"},
			Database: 4, Username: "u", Password: "p", Master: "main", SentinelUsername: "s",
			SentinelPassword: "q&r"},
	} {
		got, err := redisurl.Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", text, got, err, want)
		}
	}
}

func TestUser(t *testing.T) {
	if got := (redisurl.URL{}).User(); got != "default" {
		t.Errorf("got %s", got)
	}
	if got := (redisurl.URL{Username: "alice"}).User(); got != "alice" {
		t.Errorf("got %s", got)
	}
}

func TestParseErrors(t *testing.T) {
	const (
		slash    = "malformed; in a password write %2F for a slash, and so on"
		scheme   = "unknown scheme, want redis, rediss, unix, redis+cluster or redis+sentinel"
		database = "want a number"
		several  = "several hosts, want redis+cluster://host,host or " +
			"redis+sentinel://host,host/master-name"
		sentinel = "want redis+sentinel://host:port,host:port/master-name"
		port     = "a port is a number from 1 to 65535"
		host     = "a host is neither a name nor an address"
		socket   = "want the path of a socket, such as unix:///run/redis.sock"
	)
	for _, tc := range []struct{ url, shown, want string }{
		{"", "", "want redis://host:port"},
		{"localhost:6379", "localhost:6379", "want redis://host:port"},
		{"alice:s3cret@localhost", "alice:xxxxx@localhost", "want redis://host:port"},
		{"http://h", "http://h", scheme},
		{"redissx://h", "redissx://h", scheme},
		{"redis+ring://u:s3cret@h", "redis+ring:xxxxx@h", scheme},
		{"redis://", "redis://", "a host is missing"},
		{"redis://:6379", "redis://:6379", "a host is missing"},
		{"redis+cluster://a,,b", "redis+cluster://a,,b", "a host is missing"},
		{"redis://:p #  [a7 b]", "redis://:xxxxx", host},
		{"redis://my host", "redis://my host", host},
		{"redis://[a]b", "redis://[a]b", host},
		{"redis://s3:cr:et", "redis://s3:xxxxx", host},
		{"redis://a,b", "redis://a,b", several},
		{"redis://h:port", "redis://h:xxxxx", port},
		{"redis://h:0", "redis://h:0", port},
		{"redis://h:70000", "redis://h:xxxxx", port},
		{"redis://alice:s3cret", "redis://alice:xxxxx", port}, // without the host
		{"redis://h/one", "redis://h/one", `database "one", ` + database},
		{"redis://h/-1", "redis://h/-1", `database "-1", ` + database},
		{"redis://h/1/2", "redis://h/1/2", `databases ["1" "2"], want one`},
		{"redis://h/1?db=1", "redis://h/1?db=1", `databases ["1" "1"], want one`},
		{"redis+cluster://h/x", "redis+cluster://h/x", `database "x", ` + database},
		{"redis+cluster://h/1?db=1", "redis+cluster://h/1?db=1", `databases ["1" "1"], want one`},
		{"redis+sentinel://h", "redis+sentinel://h", sentinel},
		{"redis+sentinel://me:pw@h:1/?sentinel-user=a&sentinel-password=s3cret&db=1",
			"redis+sentinel://me:xxxxx@h:1/?sentinel-user=a&sentinel-password=xxxxx&db=1",
			sentinel},
		{"redis+sentinel://h/m?sentinel_password=s3cret", "redis+sentinel://h/m?xxxxx",
			"unknown parameter, want db, sentinel-user, sentinel-password"},
		{"redis+sentinel://h/m?sentinel-password=1&s3cret",
			"redis+sentinel://h/m?sentinel-password=xxxxx&xxxxx",
			"unknown parameter, want db, sentinel-user, sentinel-password"},
		{"redis+sentinel://h/m?sentinel-password=s3cret%zz",
			"redis+sentinel://h/m?sentinel-password=xxxxx", "malformed parameters"},
		{"redis+sentinel://h:1/m?sentinel-password=a@s3cret", "redis+sentinel://h:xxxxx", slash},
		{"redis://h?sentinel-user=a", "redis://h?sentinel-user=a", "unknown parameter, want db"},
		{"redis://h?max_retries=3", "redis://h?xxxxx", "unknown parameter, want db"},
		{"redis://h/1#x", "redis://h/1#x", slash},
		{"redis://u:s3cret/x@h", "redis://u:xxxxx@h", slash},
		{"redis://u:12#s3cret@h", "redis://u:xxxxx@h", slash},
		{"redis://u:s3cret?x@h", "redis://u:xxxxx@h", slash},
		{"redis://u:s3cret%zz@h", "redis://u:xxxxx@h", slash},
		{"redis://u:@0/s3cret@h", "redis://u:xxxxx@h", slash},
		{"redis://u:s3cret@h/x", "redis://u:xxxxx@h/x", `database "x", ` + database},
		{"unix://run/redis.sock", "unix://run/redis.sock", socket},
		{"unix://", "unix://", socket},
	} {
		_, err := redisurl.Parse(tc.url)
		want := `redis URL "` + tc.shown + `": ` + tc.want
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", tc.url, err, want)
		}
	}
}

func TestMask(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"redis://h:1/0":                 "redis://h:1/0",
		"redis://[::1]:7000":            "redis://[::1]:7000",
		"redis://::a":                   "redis://::a",
		"redis://:pw@h:1":               "redis://:xxxxx@h:1",
		"redis://me@h:1":                "redis://me@h:1",
		"redis://me:pw@h:1/0?db=2":      "redis://me:xxxxx@h:1/0?db=2",
		"redis://me:p@w/x?y@h:1":        "redis://me:xxxxx@h:1",
		"redis+cluster://me:pw@h:1,h:2": "redis+cluster://me:xxxxx@h:1,h:2",
		"redis+cluster://h:1,h:pw/":     "redis+cluster://h:1,h:xxxxx/",
		"unix://me:pw@/run/redis.sock":  "unix://me:xxxxx@/run/redis.sock",
		"me:pw@h:1":                     "me:xxxxx@h:1",
	} {
		if got := redisurl.Mask(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzSecrets checks that Mask and the errors never show a password, wherever it is in the URL and
// whatever it contains unescaped.
func FuzzSecrets(f *testing.F) {
	for _, more := range []string{"", "/", "@", "?", "&", "#", "%", ":", "a@b", "?x=1&", ",:"} {
		f.Add(more, more)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "s3cret-s3cret"
		for _, text := range []string{
			"redis://me:" + before + secret + after + "@h:1/0",
			"me:" + before + secret + after + "@h",
			"redis+sentinel://h:1/m?sentinel-password=" + before + secret + after,
		} {
			if strings.ContainsAny(before, "&") && strings.Contains(text, "?") {
				continue // the secret itself contains its end
			}
			if got := redisurl.Mask(text); strings.Contains(got, secret) {
				t.Errorf("%q is shown as %q", text, got)
			}
			if _, err := redisurl.Parse(text); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// FuzzMasked checks that Mask changes nothing in a URL except its passwords.
func FuzzMasked(f *testing.F) {
	for _, text := range []string{
		"redis://me:pw@h:1/0?db=2", "redis://[::1]:7000", "redis://::1", "redis://:p #  [a7 b]",
		"rediss+cluster://me:pw@h_1:1,h-2.x", "redis+sentinel://h/m?sentinel-password=1&db=1",
		"unix:///run/redis.sock?db=1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want, err := redisurl.Parse(text)
		if err != nil || want.Unix && strings.Contains(text, "@") ||
			strings.Contains(want.Password, "sentinel-password") {
			return // Mask takes more for a password than is one
		}
		got, err := redisurl.Parse(redisurl.Mask(text))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		got.Password, got.SentinelPassword = want.Password, want.SentinelPassword
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q:\n got %+v\nwant %+v", text, got, want)
		}
	})
}
