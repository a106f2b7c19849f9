// Package certs holds a node's certificate, and whose certificates it asks for, while their files
// change.
//
// A [Store] has two sides. [Store.Server] is for those who connect: with authorities for clients it
// takes only who presents a certificate that one of them has signed. [Store.Client] is for
// connections to other nodes. Those present the node's certificate, and with authorities ask for
// one that is signed by them; its names are not looked at, as nodes know each other by addresses
// that change. Without authorities any certificate will do there: what nodes say to each other is
// sealed with the cluster's secret in any case, at both ends, and TLS adds nothing that this does
// not have but that a firewall sees nothing else on its ports.
//
// What changes is in force for connections that begin afterwards. Those that there are stay.
package certs
