// Sends the call that the page has as an example, and shows the answer as text.

const form = document.querySelector("#try");
const [status, answer] = [form.querySelector("[role=status]"), form.querySelector(".answer")];

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { body, token } = form.elements;
  const headers = { "Content-Type": "application/json" };
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  status.textContent = "Waiting for the answer…";
  try {
    const response = await fetch("v1/generate", { method: "POST", headers, body: body.value });
    const text = await response.text();
    status.textContent = `Status ${response.status}`;
    answer.textContent = JSON.stringify(JSON.parse(text), null, 1);
  } catch (error) {
    status.textContent = `No answer: ${error.message}`;
    answer.textContent = "";
  }
  answer.hidden = !answer.textContent;
});
