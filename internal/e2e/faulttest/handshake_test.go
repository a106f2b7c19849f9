package faulttest

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"twotier.dev/twotier/internal/testing/must"
	"twotier.dev/twotier/internal/testing/proctest"
	"twotier.dev/twotier/internal/testing/redistest"
)

// helloOf returns the first message of a handshake.
func helloOf(t *testing.T) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		// The end of the pipe ends the handshake.
		_ = tls.Client(client, &tls.Config{InsecureSkipVerify: true}).Handshake()
		client.Close()
	}()
	hello := make([]byte, 64)
	if _, err := io.ReadFull(server, hello); err != nil {
		t.Fatal(err)
	}
	return hello
}

// TestAttackByHandshakes fills all connections that one address may have with handshakes that
// proceed byte by byte and never end. Clients at other addresses must be served, and each handshake
// must be cut off.
func TestAttackByHandshakes(t *testing.T) {
	t.Parallel()
	const most = 20
	ours := newAuthority(t)
	cert, key := ours.issue("node", 1)
	p := program.Serve(t, proctest.Options{}, "--tls-cert", cert, "--tls-key", key,
		"--max-connections", fmt.Sprint(2*most), "--max-connections-per-address", fmt.Sprint(most))
	hello := helloOf(t)
	cut := make(chan error, most)
	for range most {
		conn, err := net.Dial("tcp", p.Listen)
		must.Succeed(t, err)
		t.Cleanup(func() { conn.Close() })
		go func() {
			for _, b := range hello {
				if _, err := conn.Write([]byte{b}); err != nil {
					break
				}
				time.Sleep(300 * time.Millisecond) // slow enough to take longer than allowed
			}
		}()
		go func() {
			_, err := io.Copy(io.Discard, conn)
			cut <- err
		}()
	}
	elsewhere := ours.client(nil)
	elsewhere.Transport.(*http.Transport).
		DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext
	add := func() int {
		code, body := ask(t, elsewhere, "", "POST", "https://"+p.Listen+"/v1/add", `{"key":"k"}`)
		if code != 200 {
			t.Errorf("from elsewhere: %d %s", code, body)
		}
		return code
	}
	for range most {
		add()
	}
	for range most {
		select {
		case <-cut:
		case <-time.After(time.Minute):
			t.Fatal("a handshake that does not end is not cut off")
		}
		add()
	}
}

// TestPeerWithAnExpiredCertificate gives one node of a cluster an expired certificate. The others
// exchange no messages with it over TLS, every count still arrives through Redis, and the log names
// the problem.
func TestPeerWithAnExpiredCertificate(t *testing.T) {
	t.Parallel()
	ours := newAuthority(t)
	server := redistest.Start(t)
	known := ours.client(ours.pair("client"))
	// The client also asks the node whose certificate is not trusted.
	known.Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	serve := func(cert, key string, more ...string) *proctest.Process {
		return program.Serve(t, proctest.Options{}, append([]string{
			"--redis", server.URL(), "--gossip", "127.0.0.1:0", "--cluster-secret",
			"a secret of the nodes",
			"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ours.path,
		}, more...)...)
	}
	cert, key := ours.issue("good", 1)
	good := serve(cert, key)
	cert, key = ours.issueUntil("expired", 2, time.Now().Add(-time.Minute))
	bad := serve(cert, key, "--join", good.Gossip)
	proctest.Until(t, "it says that its certificate has expired", func() bool {
		return strings.Contains(bad.Log.String(), "the certificate has expired")
	})
	const keys = 20
	for _, p := range []*proctest.Process{good, bad} {
		for i := range keys {
			proctest.Until(t, "the key is counted", func() bool {
				code, text := ask(t, known, "", "POST", p.Base+"/v1/add",
					fmt.Sprintf(`{"key":"k%d","ack":"redis"}`, i))
				if strings.Contains(text, `"source":"owner"`) {
					t.Errorf("a node was believed whose certificate has expired: %s", text)
				}
				return code == 200
			})
		}
	}
	for i := range keys {
		proctest.Until(t, "both counts are seen", func() bool {
			_, text := ask(t, known, "", "GET",
				fmt.Sprintf("%s/v1/count?key=k%d&window=1h", good.Base, i), "")
			return strings.Contains(text, `"max":2`)
		})
	}
}
