package switching

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/npm"
)

// TestExpressRateLimit switches over from a server with express-rate-limit, whose counts
// rate-limit-redis keeps.
func TestExpressRateLimit(t *testing.T) {
	b := newBed(t)
	url := startExpress(t, b.from, "60000", "5")
	var got []int
	for range 7 {
		response, err := http.Get(url)
		must.Succeed(t, err)
		must.Succeed(t, response.Body.Close())
		got = append(got, response.StatusCode)
	}
	if want := []int{200, 200, 200, 200, 200, 429, 429}; !slices.Equal(got, want) {
		t.Fatalf("it answers %v, want %v", got, want)
	}
	end, err := b.old.PExpireTime(t.Context(), "rl:127.0.0.1").Result()
	must.Succeed(t, err)
	args := []string{"--pattern", "rl:{key}", "--as", "ip:{key}", "--format", "fixed",
		"--window", "1m"}
	if r := b.imports(args...); r.Counted != 7 {
		t.Errorf("%+v", r)
	}
	if r := b.imports(args...); r.Counted != 0 || r.Repeated != 7 {
		t.Errorf("repeated: %+v", r)
	}
	before := time.Now().UnixMilli()
	v := b.acquire("ip:127.0.0.1", "1m", 5)
	most, least := end.Milliseconds()-before+20, end.Milliseconds()-time.Now().UnixMilli()-500
	if v.Allowed || v.Retry > most || v.Retry < least {
		t.Errorf("%+v, want a refusal for %d to %d ms", v, least, most)
	}
}

// startExpress starts the server of testdata/express over a Redis, and returns its URL.
func startExpress(t *testing.T, redis, windowMS, limit string) string {
	t.Helper()
	dir := npm.Install(t, filepath.Join("testdata", "express"))
	server := exec.Command("node", "app.mjs", redis, windowMS, limit)
	server.Dir, server.Stderr = dir, os.Stderr
	out, err := server.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, server.Start())
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have ended
		_ = server.Wait()
	})
	port, err := bufio.NewReader(out).ReadString('\n')
	must.Succeed(t, err)
	return "http://127.0.0.1:" + strings.TrimSpace(port) + "/"
}
