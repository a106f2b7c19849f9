// Package wire posts JSON to an HTTP/1.1 server at as little cost to the caller as a socket allows:
// a request is written into memory that its connection keeps, sent with one system call, and its
// answer is passed on as the bytes that arrived. Nothing else is allocated, parsed or copied. So a
// benchmark can load a server with hardly any of the processor time that both share.
//
// It knows just enough of HTTP for that: an answer has to state its length (Content-Length). It
// never sends a request again, as the server might count it twice.
package wire
