// Package certs keeps a node's certificate and the authorities it trusts, and reloads both when
// their files change.
//
// A [Store] has two sides. [Store.Server] is for incoming connections: with client authorities, it
// only accepts clients whose certificate was signed by one of them. [Store.Client] is for
// connections to other nodes. They present the node's certificate and, with authorities, require
// one signed by them. Names in certificates are not checked, because nodes know each other by
// addresses that change. Without authorities any certificate is accepted: messages between nodes
// are encrypted and authenticated end to end with the cluster's secret in any case, and TLS only
// makes them look like the rest of the traffic to a firewall.
//
// Changes apply to new connections. Existing ones stay.
package certs
