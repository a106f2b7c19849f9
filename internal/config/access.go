package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// Access holds the settings of access control and encryption. Paths and addresses are empty unless
// they are set.
type Access struct {
	Tokens                       string
	Insecure                     bool
	Hosts                        []string
	TrustedProxies               []netip.Prefix
	Admin                        string
	TLSCert, TLSKey, TLSClientCA string // the first two are both set, or both empty
	AdminToken                   string
}

func accessSettings(a *Access) []setting {
	return []setting{
		{name: "tokens", arg: "FILE",
			help: "who may do what: a line for each token with its name, hash, roles and " +
				"namespaces (twotier token NAME makes one); read again when it changes",
			set: setText(&a.Tokens)},
		{name: "insecure", def: "false",
			help: "listen beyond this machine without --tokens: whoever can connect may count, " +
				"read and reset",
			set: setParsed(&a.Insecure, parseBool)},
		{name: "hosts", arg: "NAME,...",
			help: "names under which this server is reached; without --tokens, requests for any " +
				"other name are refused on loopback, and wherever this is set (web pages " +
				"might send them)",
			set: setParsed(&a.Hosts, parseHosts)},
		{name: "trusted-proxies", arg: "CIDR,...",
			help: "networks of the proxies whose X-Forwarded-For is believed, for the client's " +
				"address in /v1/forward-auth",
			set: setParsed(&a.TrustedProxies, parseNetworks)},
		{name: "admin", arg: "HOST:PORT", help: "where to serve /v1/admin, changes of " +
			"the rules and backtests, in place of --listen, and metrics and profiles besides " +
			"(/debug/pprof/)",
			set: setChecked(&a.Admin, checkOptionalAddress)},
		{name: "tls-cert", arg: "FILE",
			help: "PEM file of this server's certificate, for everything it listens on except " +
				"gossip; read again when it changes",
			set: setText(&a.TLSCert)},
		{name: "tls-key", arg: "FILE", help: "PEM file of its key",
			set: setText(&a.TLSKey)},
		{name: "tls-client-ca", arg: "FILE",
			help: "PEM file of authorities: whoever connects must present a certificate signed " +
				"by one of them (other nodes present their --tls-cert)",
			set: setText(&a.TLSClientCA)},
		{name: "admin-token", arg: "TEXT",
			help: "a token that may do everything; without --tokens, changing the mode requires it",
			set:  setChecked(&a.AdminToken, checkSecret)},
	}
}

// mapped is the number of bits before the IPv4 part of an address such as ::ffff:10.0.0.1.
const mapped = 96

func parseHosts(text string) (hosts []string, err error) {
	for _, name := range strings.Split(text, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if strings.ContainsAny(name, ":/ ") {
			return nil, fmt.Errorf("%q is not a host name (it has no port)", name)
		}
		hosts = append(hosts, name)
	}
	return hosts, nil
}

// parseNetworks reads networks; an address is a network of one. IPv4 written as IPv6 counts as
// IPv4, as it does in the addresses of clients.
func parseNetworks(text string) (networks []netip.Prefix, err error) {
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		network, err := netip.ParsePrefix(part)
		if err != nil {
			address, err := netip.ParseAddr(part)
			if err != nil {
				return nil, fmt.Errorf("%q is not a network, such as 10.0.0.0/8 or fd00::/8", part)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		if address := network.Addr(); address.Is4In6() {
			if network.Bits() < mapped {
				return nil, fmt.Errorf("%q is neither a network of IPv4 nor one of IPv6", part)
			}
			network = netip.PrefixFrom(address.Unmap(), network.Bits()-mapped)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}
