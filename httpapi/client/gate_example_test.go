package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"twotier.dev/twotier/httpapi/client"
)

// Message control: a receiver gets at most 15 messages a minute and 50 a day, and at most 2 of the
// same content in 59 seconds and 5 in 59 minutes. All of it is one decision.
func ExampleGate() {
	address, stop := startNode()
	defer stop()
	c, err := client.New(client.Options{Addresses: []string{address}})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	gate, err := client.NewGate(client.GateOptions{
		Client: c, Outage: client.FailOpen, Wait: 5 * time.Second,
		Limits: []client.Limit{{Window: time.Minute, Max: 15}, {Window: 24 * time.Hour, Max: 50}},
	})
	if err != nil {
		panic(err)
	}
	same := []client.Limit{{Window: 59 * time.Second, Max: 2}, {Window: 59 * time.Minute, Max: 5}}
	messages := gate.HandlerOf(func(r *http.Request) []client.Check {
		to, text := r.FormValue("to"), r.FormValue("text")
		return []client.Check{{Key: to}, {Key: to + ":" + text, Limits: same}}
	}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 3 {
		w := httptest.NewRecorder()
		messages.ServeHTTP(w, httptest.NewRequest("POST", "/?to=bob&text=hello", nil))
		fmt.Println(w.Code, w.Header().Get("Retry-After") != "")
	}
	// Output:
	// 200 false
	// 200 false
	// 429 true
}
