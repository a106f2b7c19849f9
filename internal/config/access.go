package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// accessSettings returns the settings for access control.
func accessSettings() []setting {
	return []setting{
		{name: "tokens", arg: "FILE",
			help: "who may do what: a line for each token with its name, hash, roles and " +
				"namespaces (twotier token NAME makes one); read again when it changes",
			set: func(c *Config, text string) error { c.Tokens = text; return nil }},
		{name: "insecure", def: "false",
			help: "listen beyond this machine without --tokens: whoever can connect may count, " +
				"read and reset",
			set: func(c *Config, text string) error { return setBool(&c.Insecure, text) }},
		{name: "hosts", arg: "NAME,...",
			help: "names under which this server is reached; without --tokens, requests for any " +
				"other name are refused on loopback, and wherever this is set (web pages " +
				"might send them)",
			set: func(c *Config, text string) error { return setHosts(&c.Hosts, text) }},
		{name: "trusted-proxies", arg: "CIDR,...",
			help: "networks of the proxies whose X-Forwarded-For is believed, for the client's " +
				"address in /v1/forward-auth",
			set: func(c *Config, text string) error {
				return setNetworks(&c.TrustedProxies, text)
			}},
		{name: "admin", arg: "HOST:PORT", help: "where to serve /v1/admin, changes of " +
			"the rules and backtests, in place of --listen, and metrics and profiles besides " +
			"(/debug/pprof/)",
			set: func(c *Config, text string) error { c.Admin = text; return checkOptional(text) }},
		{name: "tls-cert", arg: "FILE",
			help: "PEM file of this server's certificate, for everything it listens on except " +
				"gossip; read again when it changes",
			set: func(c *Config, text string) error { c.TLSCert = text; return nil }},
		{name: "tls-key", arg: "FILE", help: "PEM file of its key",
			set: func(c *Config, text string) error { c.TLSKey = text; return nil }},
		{name: "tls-client-ca", arg: "FILE",
			help: "PEM file of authorities: whoever connects must present a certificate signed " +
				"by one of them (other nodes present their --tls-cert)",
			set: func(c *Config, text string) error { c.TLSClientCA = text; return nil }},
		{name: "admin-token", arg: "TEXT",
			help: "a token that may do everything; without --tokens, changing the mode requires it",
			set: func(c *Config, text string) error {
				c.AdminToken = text
				return checkSecret(text)
			}},
	}
}

// mapped is the number of bits before the IPv4 part of an address such as ::ffff:10.0.0.1.
const mapped = 96

func setHosts(to *[]string, text string) error {
	*to = nil
	for _, name := range strings.Split(text, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if strings.ContainsAny(name, ":/ ") {
			return fmt.Errorf("%q is not a host name (it has no port)", name)
		}
		*to = append(*to, name)
	}
	return nil
}

// setNetworks reads networks; an address is a network of one. IPv4 written as IPv6 counts as IPv4,
// as it does in the addresses of clients.
func setNetworks(to *[]netip.Prefix, text string) error {
	*to = nil
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		network, err := netip.ParsePrefix(part)
		if err != nil {
			address, err := netip.ParseAddr(part)
			if err != nil {
				return fmt.Errorf("%q is not a network, such as 10.0.0.0/8 or fd00::/8", part)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		if address := network.Addr(); address.Is4In6() {
			if network.Bits() < mapped {
				return fmt.Errorf("%q is neither a network of IPv4 nor one of IPv6", part)
			}
			network = netip.PrefixFrom(address.Unmap(), network.Bits()-mapped)
		}
		*to = append(*to, network.Masked())
	}
	return nil
}

// AllHosts returns the names that clients may use for this server: Hosts, and the host of
// Advertise, which other nodes pass on to clients. If Hosts is empty and Listen is not on loopback,
// names are not checked, and the result is empty.
func (c *Config) AllHosts() []string {
	host, _, err := net.SplitHostPort(c.Advertise)
	if err != nil || host == "" || len(c.Hosts) == 0 && !isLoopback(c.Listen) {
		return c.Hosts
	}
	return append(slices.Clone(c.Hosts), host)
}

// ListeningOn returns the settings with another address for Listen, or an error if that address
// conflicts with them.
func (c Config) ListeningOn(address string) (Config, error) {
	c.Listen = address
	return c, c.check()
}

// checkAccess checks the access settings. Without tokens it refuses an address that other machines
// can reach, unless --insecure allows it.
func (c *Config) checkAccess() error {
	switch {
	case c.Tokens != "" && c.Insecure:
		return errors.New("--insecure: there are --tokens; give only one of them")
	case (c.TLSCert == "") != (c.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key: give both or neither")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return errors.New("--tls-client-ca: needs --tls-cert and --tls-key")
	case c.Tokens != "" || c.Insecure:
		return nil
	}
	for _, l := range []struct{ flag, address string }{{"listen", c.Listen}, {"resp", c.Resp},
		{"grpc", c.GRPC}, {"admin", c.Admin}} {
		if l.address != "" && !isLoopback(l.address) {
			return fmt.Errorf("--%s: %s can be reached by others, who could count, read and "+
				"reset whatever they like: "+
				"set --tokens FILE (twotier token makes what is in it), or --insecure if "+
				"something else keeps them out", l.flag, l.address)
		}
	}
	return nil
}

// ParseSecrets reads a file of cluster secrets, one per line. Nodes send with the first and accept
// all. Empty lines and lines that begin with # are skipped. The error has the line number but none
// of the line's text.
func ParseSecrets(text []byte) (secrets [][]byte, err error) {
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := checkSecret(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		secrets = append(secrets, []byte(line))
	}
	if len(secrets) == 0 {
		return nil, errors.New("it holds no secret")
	}
	return secrets, nil
}
