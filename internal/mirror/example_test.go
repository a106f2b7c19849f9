package mirror_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/mirror"
)

var background = http.Client{Timeout: time.Second}

func sendVerdict(url, key string, allowed bool) {
	body, _ := json.Marshal(map[string]any{"key": key, "rules": []string{"login"},
		"allowed": allowed})
	answer, err := background.Post(url, "application/json", bytes.NewReader(body))
	if err == nil { // without a mirror, all goes on as before
		answer.Body.Close()
	}
}

// The application posts what its old limiter has decided, and goes on.
func Example() {
	m, err := mirror.New(mirror.Options{Twotier: newLog()})
	if err != nil {
		panic(err)
	}
	m.Open(context.Background())
	defer m.Close(context.Background())
	server := httptest.NewServer(m.Handler(hostname.Check{}))
	defer server.Close()

	oldLimiter := func(string) bool { return true }

	allowed := oldLimiter("ann")
	sendVerdict(server.URL, "user:ann", allowed)

	m.Close(context.Background())
	fmt.Println(m.Report().Agreed, "of", m.Report().Compared)
	// Output: 1 of 1
}
