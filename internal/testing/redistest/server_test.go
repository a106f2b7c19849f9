package redistest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/redistest"
)

func set(t *testing.T, s *redistest.Server, key, value string) {
	t.Helper()
	if err := s.Do("SET", key, value).Err(); err != nil {
		t.Fatalf("SET %s: %v", key, err)
	}
}

func get(t *testing.T, s *redistest.Server, key string) string {
	t.Helper()
	v, err := s.Do("GET", key).Text()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("GET %s: %v", key, err)
	}
	return v
}

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
			set(t, s, "k", "v")
		})
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Run("acl", func(t *testing.T) {
		s := redistest.Start(t, redistest.ACL("alice", "secret"))
		c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
		defer c.Close()
		if err := c.Ping(t.Context()).Err(); err == nil ||
			!strings.Contains(err.Error(), "NOAUTH") {
			t.Errorf("ping without a password: %v, want NOAUTH", err)
		}
	})
	t.Run("tls", func(t *testing.T) {
		s := redistest.Start(t, redistest.TLS())
		conn, err := tls.Dial("tcp", s.Addr(), &tls.Config{})
		if err == nil {
			conn.Close()
			t.Error("the certificate is trusted without its CA")
		}
	})
}

func TestKillAndRestart(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		opts       []redistest.Option
	}{
		{"without persistence", "", nil},
		{"with AOF", "v", []redistest.Option{redistest.AOF()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, tt.opts...)
			addr := s.Addr()
			set(t, s, "k", "v")
			s.Kill()
			s.Kill() // Kill of a server that is down does nothing
			if err := s.Do("PING").Err(); err == nil {
				t.Error("a killed server answers")
			}
			s.Restart(t)
			if got := get(t, s, "k"); got != tt.want {
				t.Errorf("after the kill k is %q, want %q", got, tt.want)
			}
			set(t, s, "k", "v")
			s.Stop()
			s.Restart(t)
			s.Restart(t) // while it is running
			if got := get(t, s, "k"); got != tt.want {
				t.Errorf("after the stop k is %q, want %q", got, tt.want)
			}
			if s.Addr() != addr {
				t.Errorf("moved from %s to %s", addr, s.Addr())
			}
		})
	}
}

func TestPausedServerExecutesLater(t *testing.T) {
	s := redistest.Start(t)
	conn, err := net.Dial("tcp", s.Addr())
	must.Succeed(t, err)
	defer conn.Close()
	s.Pause()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	// Polling can't show that nothing arrives, so wait a fixed time.
	must.Succeed(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	buf := make([]byte, 7)
	if n, err := conn.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a paused server answers %q, %v", buf[:n], err)
	}
	s.Resume()
	must.Succeed(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "+PONG\r\n" {
		t.Errorf("after the pause: %q, %v", buf[:n], err)
	}
}

func TestStopEndsAPausedServer(t *testing.T) {
	s := redistest.Start(t)
	s.Pause()
	s.Stop()
	if !strings.Contains(s.Log(), "bye bye") {
		t.Errorf("no orderly end in the log:\n%s", s.Log())
	}
}

func TestMaxMemory(t *testing.T) {
	s := redistest.Start(t, redistest.MaxMemory(1))
	if err := s.Do("SET", "k", "v").Err(); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("SET: %v, want OOM", err)
	}
}

func TestMaxClients(t *testing.T) {
	s := redistest.Start(t, redistest.MaxClients(1))
	// The text of the error depends on whether the server or the client is quicker.
	if err := pingURL(s); err == nil {
		t.Error("a second client is let in")
	}
}

func TestConfigLinesWin(t *testing.T) {
	s := redistest.Start(t, redistest.Config("databases 3"))
	if err := s.Do("SELECT", 3).Err(); err == nil {
		t.Error("there are more than three databases")
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
