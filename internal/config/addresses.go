package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"strconv"
)

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
