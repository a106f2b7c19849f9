// Command bench compares twotier and its parts with what one would use instead: it runs every benchmark in order, one at a
// time, and writes results. With -quick it takes about a minute, writes to results/quick, and shows that everything works
// rather than how fast it is. README.md says what there is and how to run it by itself.
package main
