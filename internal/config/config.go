package config

import (
	"net"
	"slices"

	"twotier.dev/twotier/internal/hostname"
	"twotier.dev/twotier/internal/strictyaml"
)

// Config holds the settings of a server, each in the field of its name, whose meaning is its help. A
// Config returned by Parse is complete and valid.
type Config struct {
	Server
	Cluster
	Store
	Access
	Output
	// RuleList is the list of rules in the configuration file, if it contains one. Then Rules is
	// empty.
	RuleList *strictyaml.Node
	// Variables are the names of all TWOTIER_* variables, whether they are settings or not.
	Variables []string
	// Namespaces holds at least the default namespace. Namespaces that are missing from it have the
	// settings of the default one.
	Namespaces map[string]Namespace
	// File is the path of the configuration file; empty if there was none.
	File string
	// PrintConfig asks to print the configuration instead of serving.
	PrintConfig bool

	values          map[string]value
	namespaceValues map[string]map[string]value
	ownValues       map[string]map[string]value // of namespaces: the part in the file
}

// Where returns where a setting was set: --NAME, a variable, or FILE:LINE:COLUMN. It is empty if
// the setting has its default.
func (c *Config) Where(name string) string {
	switch v := c.values[name]; v.origin {
	case FromFlag:
		return "--" + name
	case FromEnvironment, FromFile:
		return v.where
	}
	return ""
}

// settings lists all settings in printing order. They are parsed into c.
func settings(c *Config) []setting {
	return slices.Concat(serverSettings(&c.Server), logSettings(&c.Output),
		accessSettings(&c.Access), clusterSettings(&c.Cluster), storeSettings(&c.Store),
		countingSettings(&c.Store), outputSettings(&c.Output), outsideSettings(c))
}

func outsideSettings(c *Config) []setting {
	return []setting{
		{name: "config", arg: "FILE",
			help: "read settings from a YAML file of lines \"name: value\"", notInFile: true,
			set: func(string) error { return nil }},
		{name: "print-config", def: "false",
			help: "print all settings and where each one was set, then exit", notInFile: true,
			set: setParsed(&c.PrintConfig, parseBool)},
	}
}

// AllHosts returns the names that clients may use for this server: Hosts, and the host of
// Advertise, which other nodes pass on to clients. If Hosts is empty and Listen is not on loopback,
// names are not checked, and the result is empty.
func (c *Config) AllHosts() []string {
	host, _, err := net.SplitHostPort(c.Advertise)
	if err != nil || host == "" || len(c.Hosts) == 0 && !hostname.IsLoopback(c.Listen) {
		return c.Hosts
	}
	return append(slices.Clone(c.Hosts), host)
}
