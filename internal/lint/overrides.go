package lint

import (
	"fmt"
	"net/netip"

	"twotier.dev/twotier/internal/rules"
	"twotier.dev/twotier/internal/warning"
)

// clientBits is the length of the part of an IPv6 address that is the key of a client.
const clientBits = 64

// lintOverrides warns about overrides for addresses and networks that are never the key of a
// client's address: for /v1/forward-auth that key is an IPv4 address or the /64 network of an IPv6
// address.
func lintOverrides(s *rules.Source, _ Ladders) (list []warning.Warning) {
	for _, o := range s.Overrides {
		text := o.Key + o.Prefix // one of them is empty
		key, single := clientKey(text)
		if key == "" || o.Key == key {
			continue
		}
		w := warning.Warning{Code: warning.OverrideNeverMatches, At: o.At,
			Instead: fmt.Sprintf("key: %q", key)}
		switch {
		case !single:
			w.Reason = fmt.Sprintf("an override of rule %s for the network %s: keys are compared "+
				"as text, and none is a network of that size", o.Rule, text)
			w.Instead = "a prefix of the text of its addresses, such as prefix: \"10.1.\", or " +
				"one key for each address"
		case o.Key != "":
			w.Reason = fmt.Sprintf("an override of rule %s for the key %s: /v1/forward-auth "+
				"counts such a client under %s", o.Rule, text, key)
		default:
			continue // a prefix that looks like an address
		}
		list = append(list, w)
	}
	return list
}

// clientKey returns the key of the client whose address or network a text is, or "" if it is
// neither. single is false for a network of more than one client.
func clientKey(text string) (key string, single bool) {
	if network, err := netip.ParsePrefix(text); err == nil {
		network = network.Masked()
		single = network.Addr().Is4() && network.Bits() == 32 ||
			network.Addr().Is6() && network.Bits() >= clientBits
		key, _ = clientKey(network.Addr().String())
		return key, single
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return "", false
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a.String(), true
	}
	network, _ := a.Prefix(clientBits)
	return network.String(), true
}
