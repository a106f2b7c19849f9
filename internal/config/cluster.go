package config

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
)

// Cluster holds the settings that make a server a node of a cluster, which it is if Gossip is set.
type Cluster struct {
	Gossip, GossipAdvertise, Advertise, Peer string
	Join                                     []string
	ClusterSecret, ClusterSecretFile         string // at most one of them
	HotRate                                  int
}

// HasClusterSecret reports whether nodes share a secret.
func (c *Cluster) HasClusterSecret() bool {
	return c.ClusterSecret != "" || c.ClusterSecretFile != ""
}

func clusterSettings(c *Cluster) []setting {
	return []setting{
		{name: "gossip", arg: "HOST:PORT", help: "join a cluster, and gossip at this " +
			"address (UDP and TCP); port 0 picks a free one",
			set: setChecked(&c.Gossip, checkOptionalAddress)},
		{name: "gossip-advertise", arg: "HOST:PORT",
			help: "where the other nodes reach --gossip, if at another address",
			set:  setChecked(&c.GossipAdvertise, checkOptionalAddress)},
		{name: "advertise", arg: "HOST:PORT",
			help: "where the other nodes reach the HTTP API, if at another address than --listen",
			set:  setChecked(&c.Advertise, checkOptionalAddress)},
		{name: "peer", arg: "HOST:PORT",
			help: "address for messages from other nodes, in place of --listen",
			set:  setChecked(&c.Peer, checkOptionalAddress)},
		{name: "join", arg: "HOST:PORT,...",
			help: "gossip addresses of all nodes; this node may be among them",
			set:  setParsed(&c.Join, parseAddresses)},
		{name: "cluster-secret", arg: "TEXT",
			help: "encrypts and authenticates all messages between nodes; required unless gossip " +
				"and HTTP API can only be reached from this machine",
			set: setChecked(&c.ClusterSecret, checkSecret)},
		{name: "cluster-secret-file", arg: "FILE",
			help: "file of such secrets, one per line: the first is used, all are accepted; " +
				"reloaded when it changes",
			set: setText(&c.ClusterSecretFile)},
		{name: "hot-rate", def: "2000", arg: "N", advanced: true,
			help: "operations a second on one key of another node before this one borrows " +
				"some of what is left of the key's limits, to decide without asking; 0: never",
			set: setParsed(&c.HotRate, parseIntegerWithin(0, math.MaxInt,
				"a number of operations a second, 0 or more"))},
	}
}

func parseAddresses(text string) (addresses []string, err error) {
	for _, address := range strings.Split(text, ",") {
		if address = strings.TrimSpace(address); address == "" {
			continue
		}
		if err := checkAddress(address); err != nil {
			return nil, err
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

const leastSecret = 16

// checkSecret refuses a secret that is probably a mistake: one that is too short or has control
// characters. It accepts an empty secret.
func checkSecret(text string) error {
	if text != "" && len(text) < leastSecret {
		return fmt.Errorf("too short; at least %d characters", leastSecret)
	}
	if strings.ContainsFunc(text, unicode.IsControl) {
		return errors.New("contains a control character")
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
