package faultproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// messages has one whole message of each kind.
var messages = [...]string{
	"PING\r\n",
	"\r\n",
	"+OK\r\n",
	"-ERR no\r\n",
	":17\r\n",
	"$3\r\nabc\r\n",
	"$2\r\n\r\n\r\n",
	"$0\r\n\r\n",
	"$-1\r\n",
	"*-1\r\n",
	"*0\r\n",
	"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
	"*3\r\n*1\r\n:1\r\n*0\r\n$-1\r\n",
	"_\r\n", "#t\r\n", ",1.5\r\n", "(123456789012345678901234567890\r\n",
	"=7\r\ntxt:abc\r\n",
	"!5\r\nE bad\r\n",
	"~2\r\n:1\r\n:2\r\n",
	"%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
	">2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n",
	"|1\r\n+ttl\r\n:3\r\n*1\r\n:1\r\n",
}

func TestReadRESP(t *testing.T) {
	all := strings.Join(messages[:], "")
	br := bufio.NewReader(iotest.OneByteReader(strings.NewReader(all)))
	for _, want := range messages {
		if got, err := readRESP(br); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	if got, err := readRESP(br); !errors.Is(err, io.EOF) || len(got) != 0 {
		t.Errorf("at the end: %q, %v", got, err)
	}
}

func TestReadRESPPart(t *testing.T) {
	for _, part := range []string{"PI", "$5\r\nab", "*2\r\n:1\r\n", "*2\r\n$3\r\nGET\r\n$1"} {
		if got, err := readRESP(bufio.NewReader(strings.NewReader(part))); err == nil ||
			string(got) != part {
			t.Errorf("%q: got %q, %v", part, got, err)
		}
	}
}

func TestReadRESPBad(t *testing.T) {
	for _, bad := range []string{"$x\r\n", "*-2\r\n", "$99999999999\r\n", "*?\r\n"} {
		if _, err := readRESP(bufio.NewReader(strings.NewReader(bad))); err == nil ||
			errors.Is(err, io.EOF) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzReadRESP checks that no input makes the reader panic or lose bytes.
func FuzzReadRESP(f *testing.F) {
	for _, m := range messages {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got []byte
		br := bufio.NewReader(bytes.NewReader(data))
		for {
			frame, err := readRESP(br)
			got = append(got, frame...)
			if err != nil {
				break
			}
		}
		if !bytes.HasPrefix(data, got) {
			t.Errorf("read %q from %q", got, data)
		}
	})
}
