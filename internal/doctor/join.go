package doctor

import (
	"context"
	"fmt"
	"net"
)

// Join returns the finding about the addresses of --join, for a cluster with that many members. own
// are the gossip addresses of the node itself. All other nodes should be listed: a node that starts
// while Redis does not answer finds only the listed ones.
func Join(ctx context.Context, addresses, own []string, members int) Finding {
	others := map[string]bool{}
	for _, address := range addresses {
		for _, at := range resolve(ctx, address) {
			others[at] = true
		}
	}
	for _, address := range own {
		for _, at := range resolve(ctx, address) {
			delete(others, at)
		}
	}
	f := Finding{Level: Fine, About: "--join",
		Found: fmt.Sprintf("lists the %d other nodes", members-1)}
	if len(others) < members-1 {
		f.Level, f.Found = Warning, fmt.Sprintf("lists %d of %d other nodes", len(others),
			members-1)
		f.Do = "list the gossip addresses of all nodes, the same list on each: one that starts " +
			"while Redis does not answer, and the listed nodes are down, makes a cluster of its own"
	}
	return f
}

// resolve returns the addresses that a host:port stands for. An unspecified host stands for all
// addresses of this machine.
func resolve(ctx context.Context, address string) (list []string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		ips, err = localAddresses(), nil
	}
	if err != nil {
		ips = []string{host} // a name that is not known here may be known at the node
	}
	for _, ip := range ips {
		list = append(list, net.JoinHostPort(ip, port))
	}
	return list
}

// localAddresses returns the addresses of this machine's interfaces.
func localAddresses() (list []string) {
	all, _ := net.InterfaceAddrs() // none is as good as unknown ones
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			list = append(list, n.IP.String())
		}
	}
	return list
}
