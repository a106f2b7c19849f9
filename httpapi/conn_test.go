package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"twotier.dev/twotier/httpapi"
	"twotier.dev/twotier/internal/listener"
)

// TestIdleConnectionsAreParked leaves connections idle until they are parked. They are served
// again, also with two requests in one segment, and end with the server.
func TestIdleConnectionsAreParked(t *testing.T) {
	f := newFake()
	s, addr := open(t, httpapi.Options{Service: f})
	var conns []net.Conn
	var readers []*bufio.Reader
	for range 20 {
		c := dial(t, addr)
		conns, readers = append(conns, c), append(readers, bufio.NewReader(c))
	}
	for round := range 3 {
		for i, c := range conns {
			fmt.Fprint(c, rawAdd(`{"key":"k"}`)+rawAdd(`{"key":"k"}`))
			for range 2 {
				if code, body := answer(t, readers[i]); code != 200 {
					t.Fatalf("round %d: %d %s", round, code, body)
				}
			}
		}
		for deadline := time.Now().
			Add(10 * time.Second); s.Awake() > 0; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are taken by connections that are idle", s.Awake())
			}
		}
	}
	if got := f.get("k"); got != 120 {
		t.Errorf("counted %d, want 120", got)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	for i := range conns {
		if _, err := readers[i].ReadByte(); err != io.EOF {
			t.Errorf("after the server's end: %v, want %v", err, io.EOF)
		}
	}
}

// TestParkedConnectionsEnd when their idle timeout is over.
func TestParkedConnectionsEnd(t *testing.T) {
	_, addr := open(t, httpapi.Options{Service: newFake(),
		Limits: listener.Limits{IdleTimeout: 300 * time.Millisecond}})
	c := dial(t, addr)
	fmt.Fprint(c, rawAdd(`{"key":"k"}`))
	r := bufio.NewReader(c)
	if code, body := answer(t, r); code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("after the idle timeout: %q, %v", rest, err)
	}
}

// TestLargeAnswersAreTheirOwn sends two batches at a time over each of several connections. Answers
// are not copied before they are written, so each must have separate memory until then.
func TestLargeAnswersAreTheirOwn(t *testing.T) {
	s, addr := open(t, httpapi.Options{Service: newFake()})
	const conns, rounds, ops = 8, 20, 300
	var running sync.WaitGroup
	for i := range conns {
		running.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			answers := bufio.NewReader(c)
			for round := range rounds {
				keys := [2]string{fmt.Sprintf("first-%d-%d", i, round),
					fmt.Sprintf("second-%d-%d", i, round)}
				go func() {
					for _, key := range keys {
						body := strings.ReplaceAll(adds(ops), `"k"`, `"`+key+`"`)
						fmt.Fprintf(c, "POST /v1/batch HTTP/1.1\r\nHost: "+
							"localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
					}
				}()
				for _, key := range keys {
					if err := answeredWith(answers, key, ops); err != nil {
						t.Errorf("%s: %v", key, err)
						return
					}
				}
			}
		})
	}
	running.Wait()
	eventually(t, func() bool { return s.Taken().Bytes == 0 }, "everything is given back")
}

// answeredWith reads an answer to so many operations on one key.
func answeredWith(r *bufio.Reader, key string, ops int) error {
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if n := strings.Count(string(body), `{"key":"`+key+`"`); err == nil &&
		(res.StatusCode != 200 || n != ops) {
		err = fmt.Errorf("%d with %d results: %.200s", res.StatusCode, n, body)
	}
	return err
}
