package clientaddr_test

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"twotier.dev/twotier/internal/clientaddr"
	"twotier.dev/twotier/internal/testing/must"
)

// TestAddresses compares with the table of the middleware in all languages.
func TestAddresses(t *testing.T) {
	var table []struct {
		Peer               string
		Forwarded, Trusted []string
		Key                string
	}
	text := must.Read(t, "../../clients/testdata/addresses.json")
	must.Succeed(t, json.Unmarshal([]byte(text), &table))
	for _, row := range table {
		var trusted []netip.Prefix
		for _, text := range row.Trusted {
			if !strings.Contains(text, "/") {
				text += "/32"
			}
			trusted = append(trusted, netip.MustParsePrefix(text))
		}
		peer, _ := netip.ParseAddr(row.Peer)
		a, _ := clientaddr.Behind(clientaddr.Plain(peer), row.Forwarded,
			func(a netip.Addr) bool { return clientaddr.Within(trusted, a) })
		if got := clientaddr.Key(a); got != row.Key {
			t.Errorf("%+v: the key is %s", row, got)
		}
	}
	if len(table) < 30 {
		t.Errorf("the table has only %d rows", len(table))
	}
}
