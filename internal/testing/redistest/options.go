package redistest

import "fmt"

// Option changes how a server is started.
type Option func(*config)

// config is the result of the options.
type config struct {
	aof        bool
	user, pass string
	tls        bool
	tlsFiles   TLSFiles // if empty, the server makes its own
	unix       bool
	lines      []string
	// args follow the configuration file on the command line.
	args []string
	// within precedes the program on the command line, and host is the address it then listens on.
	within []string
	host   string
	// cluster is set for a node of a Redis Cluster. Its bus port, 10000 above its port, must be
	// free too.
	cluster bool
}

// AOF keeps every write in an append-only file that is synced before the reply, so that
// [Server.Restart] finds it.
func AOF() Option { return func(c *config) { c.aof = true } }

// MaxMemory limits the data to the given number of bytes; writes beyond it are refused
// (noeviction).
func MaxMemory(bytes int64) Option {
	return Config(fmt.Sprintf("maxmemory %d", bytes), "maxmemory-policy noeviction")
}

// MaxClients limits the number of connections. The client of [Server.Do] uses one of them.
func MaxClients(n int) Option { return Config(fmt.Sprintf("maxclients %d", n)) }

// ACL admits only the given user, with all permissions. For the user "default" clients only need
// the password.
func ACL(user, password string) Option {
	return func(c *config) { c.user, c.pass = user, password }
}

// TLS serves TLS only, with a certificate for 127.0.0.1 and localhost from a CA made for this
// server: see [Server.TLS].
func TLS() Option { return func(c *config) { c.tls = true } }

// UnixSocket serves on a Unix socket only.
func UnixSocket() Option { return func(c *config) { c.unix = true } }

// Within starts a single server by a command that takes the program and its arguments, such as ip
// netns exec NAME. The server listens at the given address instead of 127.0.0.1.
func Within(host string, command ...string) Option {
	return func(c *config) { c.host, c.within = host, command }
}

// Config adds lines to the configuration file. They override the lines before them.
func Config(lines ...string) Option {
	return func(c *config) { c.lines = append(c.lines, lines...) }
}
