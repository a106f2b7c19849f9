package httpapi_test

import (
	"testing"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/cluster"
)

// TestEvents compares the service's events, and expects empty lists where it has none.
func TestEvents(t *testing.T) {
	f := newFake()
	s := newServer(t, f)
	get := func(want string) {
		t.Helper()
		if got := string(call(s, "GET /v1/events", "").Response.Body()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	get(`{"events":[],"departed":[]}`)
	f.events = cluster.Events{
		Events: []cluster.Event{{At: 5, Kind: cluster.Crashed, Member: "c", Text: "c is gone",
			Nodes: []string{"a"}}},
		Departed: []cluster.Departed{{ID: "c", Address: "c:1", At: 5, Why: cluster.Crashed}},
		Missing:  []string{"b"},
	}
	get(`{"events":[{"at":5,"kind":"crashed","member":"c","text":"c is gone","nodes":["a"]}],` +
		`"departed":[{"id":"c","address":"c:1","at":5,"why":"crashed"}],"missing":["b"]}`)
	if got := call(s, "GET /v1/events?x=1", "").Response.StatusCode(); got != 422 {
		t.Errorf("an unknown parameter: %d", got)
	}
}

// TestEventsNeedAReader because events reveal all namespaces.
func TestEventsNeedAReader(t *testing.T) {
	store, token := tokens(t, "reader read", "counter count")
	s := guarded(t, httpapi.Options{Tokens: store})
	for _, tt := range []struct {
		who  string
		want int
	}{{"reader", 200}, {"counter", 403}, {"", 401}} {
		bearer := ""
		if tt.who != "" {
			bearer = token[tt.who]
		}
		if got := as(s, bearer, "GET /v1/events", "").Response.StatusCode(); got != tt.want {
			t.Errorf("%q: %d, want %d", tt.who, got, tt.want)
		}
	}
}
