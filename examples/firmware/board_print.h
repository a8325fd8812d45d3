/* board_print for a board.c that has send(), which sends a letter. On your chip, printf may stand here. */
static void send_all(const char *text) {
  while (*text != '\0') send(*text++);
}

void board_print(const char *before, int32_t number, const char *after) {
  char text[12];
  uint32_t at = 0, rest = number < 0 ? 0u - (uint32_t)number : (uint32_t)number;
  do text[at++] = (char)('0' + rest % 10u);
  while ((rest /= 10u) != 0u);
  send_all(before);
  if (number < 0) send('-');
  while (at != 0u) send(text[--at]);
  send_all(after);
  send('\n');
}
