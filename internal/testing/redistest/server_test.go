package redistest_test

import (
	"context"
	"crypto/x509"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

// pingURL pings with a client made from the URL alone, as a user of it would.
func pingURL(s *redistest.Server) error {
	opt, err := redis.ParseURL(s.URL())
	if err != nil {
		return err
	}
	if opt.TLSConfig != nil {
		ca, err := os.ReadFile(s.TLS().CA)
		if err != nil {
			return err
		}
		opt.TLSConfig.RootCAs = x509.NewCertPool()
		opt.TLSConfig.RootCAs.AppendCertsFromPEM(ca)
	}
	opt.MaxRetries = -1
	c := redis.NewClient(opt)
	defer c.Close()
	return c.Ping(context.Background()).Err()
}

func TestStart(t *testing.T) {
	for _, tt := range []struct {
		name, scheme string
		opts         []redistest.Option
	}{
		{"plain", "redis://", nil},
		{"acl", "redis://alice:s3%20%40cret@",
			[]redistest.Option{redistest.ACL("alice", "s3 @cret")}},
		{"password", "redis://default:secret@",
			[]redistest.Option{redistest.ACL("default", "secret")}},
		{"tls", "rediss://", []redistest.Option{redistest.TLS()}},
		{"unix", "unix:///", []redistest.Option{redistest.UnixSocket()}},
		{"tls and acl", "rediss://bob:x@",
			[]redistest.Option{redistest.TLS(), redistest.ACL("bob", "x")}},
		{"unix and acl", "unix://bob:x@/",
			[]redistest.Option{redistest.UnixSocket(), redistest.ACL("bob", "x")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, tt.opts...)
			if !strings.HasPrefix(s.URL(), tt.scheme) {
				t.Errorf("URL is %s, want %s...", s.URL(), tt.scheme)
			}
			if err := pingURL(s); err != nil {
				t.Errorf("ping %s: %v", s.URL(), err)
			}
		})
	}
}

func TestFeatures(t *testing.T) {
	s := redistest.Start(t)
	got := redistest.Features(t, s)
	list, err := s.Do("COMMAND", "LIST", "FILTERBY", "PATTERN", "hpexpire").StringSlice()
	must.Succeed(t, err)
	if got.HPExpire != (len(list) == 1) {
		t.Errorf("Features says %v, COMMAND LIST %v", got, list)
	}
	if n, err := s.Do("DBSIZE").Int(); err != nil || n != 0 {
		t.Errorf("%d keys left behind, %v", n, err)
	}
}

func TestExpiry(t *testing.T) {
	s := redistest.Start(t)
	has := redistest.Expiries(t, s)
	if has[0] != "key" || slices.Contains(has, "field") != redistest.Features(t, s).HPExpire {
		t.Errorf("%v", has)
	}
	if e := redistest.Expiry(t, s); !slices.Contains(has, e) || e != redistest.Expiry(t, s) {
		t.Errorf("%s of %v", e, has)
	}
	for _, e := range has {
		t.Setenv("TWOTIER_TEST_EXPIRY", e)
		if got := redistest.Expiry(t, s); got != e {
			t.Errorf("%s instead of %s", got, e)
		}
	}
	t.Setenv("TWOTIER_TEST_EXPIRY", "never")
	if got := redistest.Expiry(t, s); !slices.Contains(has, got) {
		t.Errorf("%s of %v", got, has)
	}
}
