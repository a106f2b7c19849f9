package config

import (
	"errors"
	"fmt"
	"strings"
)

// accessSettings are who may connect and what they may do.
func accessSettings() []setting {
	return []setting{
		{name: "tokens", arg: "FILE", help: "who may do what: a line for each token with its name, hash, roles and\n" +
			"namespaces (twotier token NAME makes one); read again when it changes",
			set: func(c *Config, text string) error { c.Tokens = text; return nil }},
		{name: "insecure", def: "false", help: "listen beyond this machine without --tokens: whoever can connect may\n" +
			"count, read and reset",
			set: func(c *Config, text string) error { return setBool(&c.Insecure, text) }},
		{name: "hosts", arg: "NAME,...", help: "names that this server is reached by; without --tokens a browser that\n" +
			"asks for another one is refused on loopback, and wherever this is set",
			set: func(c *Config, text string) error { return setHosts(&c.Hosts, text) }},
		{name: "admin-token", arg: "TEXT", help: "what may do everything, and is needed to change the mode where there\n" +
			"are no --tokens",
			set: func(c *Config, text string) error { c.AdminToken = text; return checkSecret(text) }},
	}
}

func setHosts(to *[]string, text string) error {
	*to = nil
	for _, name := range strings.Split(text, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if strings.ContainsAny(name, ":/ ") {
			return fmt.Errorf("%q is not a name of a host, which has no port", name)
		}
		*to = append(*to, name)
	}
	return nil
}

// checkAccess refuses to let whoever can connect do everything, unless that is said.
func (c *Config) checkAccess() error {
	if c.Tokens != "" && c.Insecure {
		return errors.New("--insecure: there are --tokens; leave one of them out")
	}
	if c.Tokens != "" || c.Insecure || isLoopback(c.Listen) {
		return nil
	}
	return fmt.Errorf("--listen: %s can be reached by others, who could count, read and reset whatever they like: "+
		"set --tokens FILE (twotier token makes what is in it), or --insecure if something else keeps them out", c.Listen)
}
