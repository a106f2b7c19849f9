package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"twotier.dev/twotier/internal/hostname"
)

// check checks that the values are consistent, once each value is valid by itself.
func (c *Config) check() error {
	return cmp.Or(c.checkListeners(), c.checkCluster(), c.checkAccess(), c.checkLag(),
		c.checkConnections(), c.checkStore())
}

// checkListeners refuses two listeners at one address. Otherwise the second one would fail with an
// error that blames another process.
func (c *Config) checkListeners() error {
	listeners := []struct{ flag, address, remedy string }{
		{"listen", c.Listen, ""},
		{"resp", c.Resp, ""},
		{"grpc", c.GRPC, ""},
		{"admin", c.Admin, ", or leave --admin out to have both there"},
		{"peer", c.Peer, ", or leave --peer out to have nodes use --listen"},
		{"gossip", c.Gossip, ""},
	}
	for i, l := range listeners {
		for _, other := range listeners[:i] {
			if addressesOverlap(l.address, other.address) {
				return fmt.Errorf("--%s: --%s listens at %s already; name another port%s",
					l.flag, other.flag, other.address, l.remedy)
			}
		}
	}
	return nil
}

// checkCluster checks the settings of a cluster.
func (c *Config) checkCluster() error {
	if c.Gossip == "" {
		for _, s := range []struct {
			name string
			set  bool
		}{{"join", len(c.Join) > 0}, {"gossip-advertise", c.GossipAdvertise != ""},
			{"cluster-secret", c.HasClusterSecret()},
			{"peer", c.Peer != ""}} {
			if s.set {
				return fmt.Errorf("--%s: needs --gossip, such as --gossip 127.0.0.1:7946", s.name)
			}
		}
		return nil
	}
	if c.Redis == "" {
		return errors.New("--gossip: a cluster needs --redis: that is where its nodes meet")
	}
	const remedy = "set --cluster-secret (better TWOTIER_CLUSTER_SECRET), the same on all nodes"
	peers := cmp.Or(c.Peer, c.Listen)
	switch {
	case c.ClusterSecret != "" && c.ClusterSecretFile != "":
		return errors.New("--cluster-secret and --cluster-secret-file: give only one of them")
	case c.HasClusterSecret():
	case !hostname.IsLoopback(c.Gossip):
		return fmt.Errorf("--gossip: %s can be reached by others: %s", c.Gossip, remedy)
	case !hostname.IsLoopback(peers) && c.Peer != "":
		return fmt.Errorf("--peer: %s can be reached by others: %s", peers, remedy)
	case !hostname.IsLoopback(peers):
		return fmt.Errorf("--listen: %s can be reached by others, and takes messages of other "+
			"nodes: %s", peers, remedy)
	case c.TLSCert != "":
		return fmt.Errorf("--tls-cert: nodes that use TLS among themselves also need a "+
			"secret: %s", remedy)
	}
	return nil
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
		if l.address != "" && !hostname.IsLoopback(l.address) {
			return fmt.Errorf("--%s: %s can be reached by others, who could count, read and "+
				"reset whatever they like: "+
				"set --tokens FILE (twotier token makes what is in it), or --insecure if "+
				"something else keeps them out", l.flag, l.address)
		}
	}
	return nil
}

// ListeningOn returns the settings with another address for Listen, or an error if that address
// conflicts with them.
func (c Config) ListeningOn(address string) (Config, error) {
	c.Listen = address
	return c, c.check()
}

// addressesOverlap reports whether one process can't listen on both addresses. Names are not
// resolved: a name only overlaps with the same name.
func addressesOverlap(a, b string) bool {
	hostA, portA, _ := net.SplitHostPort(a) // both were checked to be addresses or empty
	hostB, portB, _ := net.SplitHostPort(b)
	if portA != portB || portA == "" || portA == "0" {
		return false
	}
	ipA, errA := addressOf(hostA)
	ipB, errB := addressOf(hostB)
	if cmp.Or(errA, errB) != nil {
		return hostA == hostB
	}
	return covers(ipA, ipB) || covers(ipB, ipA)
}

// addressOf returns the IP address of a host. An empty host means any address, IPv4 and IPv6.
func addressOf(host string) (netip.Addr, error) {
	switch host {
	case "":
		return netip.IPv6Unspecified(), nil
	case "localhost":
		host = "127.0.0.1" // net.Listen prefers it to ::1
	}
	ip, err := netip.ParseAddr(host)
	return ip.Unmap(), err
}

// covers reports whether listening at a includes listening at b.
func covers(a, b netip.Addr) bool {
	return a == b || a.IsUnspecified() && (a.Is6() || b.Is4())
}

func checkAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:8080", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not a number from 0 to 65535", port)
	}
	return nil
}

// checkOptionalAddress accepts an address or nothing.
func checkOptionalAddress(text string) error {
	if text == "" {
		return nil
	}
	return checkAddress(text)
}
