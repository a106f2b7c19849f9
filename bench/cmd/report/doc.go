// Command report makes one page of what the other commands have written: the pictures, and the goals with what was measured,
// whether it is met, and what bounds it. It measures nothing itself.
package main
