package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"twotier.dev/twotier/httpapi"
)

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
