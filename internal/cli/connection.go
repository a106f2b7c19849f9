package cli

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"twotier.dev/twotier"
	"twotier.dev/twotier/internal/certs"
	"twotier.dev/twotier/internal/config"
)

// connection holds the flags that all commands share: which server to call, and with which
// credentials.
type connection struct {
	server, token, tokenFile string
	ca, cert, key            string
	json                     bool
	timeout                  time.Duration
}

const (
	defaultServer  = "http://127.0.0.1:8080"
	defaultTimeout = 5 * time.Second
)

func (c *connection) addFlags(fs *pflag.FlagSet, timeout time.Duration) {
	fs.StringVar(&c.server, "server", "", "`URL` of a server (default $TWOTIER_SERVER, or "+
		defaultServer+")")
	fs.StringVar(&c.token, "token", "",
		"`TEXT` to present where there are --tokens (better $TWOTIER_TOKEN: ps shows this)")
	fs.StringVar(&c.tokenFile, "token-file", "",
		"`FILE` that holds the token (default $TWOTIER_TOKEN_FILE)")
	fs.StringVar(&c.ca, "ca", "",
		"PEM `FILE` of the authorities to trust (default $TWOTIER_CA, or the system's)")
	fs.StringVar(&c.cert, "cert", "",
		"PEM `FILE` of a certificate to present (default $TWOTIER_CERT)")
	fs.StringVar(&c.key, "key", "", "PEM `FILE` of its key (default $TWOTIER_KEY)")
	fs.BoolVar(&c.json, "json", false, "print the answer as JSON")
	c.timeout = cmp.Or(timeout, defaultTimeout)
	fs.Var((*duration)(&c.timeout), "timeout", "longest `TIME` to wait for an answer")
}

// duration is a flag in the spelling of all durations, with days and weeks.
type duration time.Duration

// String returns the duration without trailing zero units.
func (d *duration) String() string { return twotier.FormatDuration(time.Duration(*d)) }

// Type returns the name of the flag's value in the help.
func (d *duration) Type() string { return "duration" }

// Set reads a duration such as 90s or 1d12h.
func (d *duration) Set(text string) error {
	value, err := config.ParseDuration(text)
	*d = duration(value)
	return err
}

func (c *connection) newSession(o IO) (*session, error) {
	server := cmp.Or(c.server, o.getenv("TWOTIER_SERVER"), defaultServer)
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usagef("--server: %q is not a URL such as %s", server, defaultServer)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, usagef("--server: port %q is not a number from 1 to 65535", port)
		}
	}
	if c.timeout <= 0 {
		return nil, usagef("--timeout: %s is not more than 0", c.timeout)
	}
	token, err := c.readToken(o)
	if err != nil {
		return nil, err
	}
	secure, err := c.readTLS(o)
	if err != nil {
		return nil, err
	}
	return &session{IO: o, client: newCaller(u, token, secure, c.timeout), json: c.json}, nil
}

// readToken returns the token to present, or "" for none. Flags take precedence over the
// environment, and a token over a file that holds one.
func (c *connection) readToken(o IO) (string, error) {
	if c.token != "" || c.tokenFile == "" && o.getenv("TWOTIER_TOKEN") != "" {
		return cmp.Or(c.token, o.getenv("TWOTIER_TOKEN")), nil
	}
	path := cmp.Or(c.tokenFile, o.getenv("TWOTIER_TOKEN_FILE"))
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \r\n\t") {
		return "", fmt.Errorf("--token-file: %s does not hold one token and nothing else", path)
	}
	return token, nil
}

// readTLS returns the TLS configuration for an https server, or nil for the system's defaults.
func (c *connection) readTLS(o IO) (*tls.Config, error) {
	ca := cmp.Or(c.ca, o.getenv("TWOTIER_CA"))
	cert, key := cmp.Or(c.cert, o.getenv("TWOTIER_CERT")), cmp.Or(c.key, o.getenv("TWOTIER_KEY"))
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, usagef("--cert and --key: give both or neither")
	}
	return certs.ReadClient("--", ca, cert, key)
}
